#include "platform/threads.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "error.hpp"

namespace lazyck::rt {

namespace {

std::array<std::mutex, 3> g_locks;

// Returns a function that throws the exception being handled again, in another thread. This must be
// called within a handler. std::exception_ptr would do this too, but other libraries export copies
// of its code, and a linker would make the lazy library depend on them (see cxx_library.cpp).
std::function<void()> thrower() {
    try {
        throw;
    } catch (const CompileError& e) {
        return [e] { throw e; };
    } catch (const std::bad_alloc& e) {
        return [e] { throw e; };
    } catch (const std::exception& e) {
        return [what = std::string(e.what())] { throw std::runtime_error(what); };
    }
}

}  // namespace

BlockedSignals::BlockedSignals() : m_before() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &m_before);
}

BlockedSignals::~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &m_before, nullptr); }

bool start_thread(std::function<void()> work) {
    const BlockedSignals blocked;
    try {
        std::thread([work = std::move(work)] {
            const DefaultFloatingPoint ours;
            work();
        }).detach();
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

long thread_number() { return syscall(SYS_gettid); }

void for_each_in_parallel(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::function<void()> problem;
    const auto run = [&] {
        for (std::size_t i = next++; i < count; i = next++) {
            try {
                work(i);
            } catch (const std::exception&) {
                const std::lock_guard<std::mutex> guard(mutex);
                if (!problem) problem = thrower();
            }
        }
    };
    std::vector<std::thread> threads;
    try {
        const BlockedSignals blocked;
        for (std::size_t i = 1; i < std::min(count, jobs); ++i) {
            threads.emplace_back([&] {
                const DefaultFloatingPoint ours;
                run();
            });
        }
    } catch (const std::exception&) {
        // The system cannot start more threads, so fewer do the work.
    }
    run();
    for (std::thread& thread : threads) thread.join();
    if (problem) problem();
}

std::mutex& lock_of(Shared what) { return g_locks[static_cast<std::size_t>(what)]; }

void global_locks_before_fork() {
    for (std::mutex& each : g_locks) each.lock();
}

void global_locks_after_fork() {
    for (std::mutex& each : g_locks) each.unlock();
}

}  // namespace lazyck::rt
