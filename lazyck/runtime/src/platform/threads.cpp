#include "platform/threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "error.hpp"
#include "platform/process.h"

namespace lazyck::rt {

namespace {

std::array<std::mutex, 2> g_locks;

// Under this key, each thread has where its signals are kept out. See api.cpp for why it is a key
// of pthreads; nothing if the process has no more of them.
Lasting<std::optional<pthread_key_t>> g_signals_key;

std::optional<pthread_key_t> make_signals_key() {
    pthread_key_t key;
    if (pthread_key_create(&key, nullptr) != 0) return std::nullopt;
    std::atexit([] { pthread_key_delete(*g_signals_key.get(make_signals_key)); });
    return key;
}

const BlockedSignals* kept_out() {
    const auto& key = g_signals_key.get(make_signals_key);
    return key ? static_cast<const BlockedSignals*>(pthread_getspecific(*key)) : nullptr;
}

void set_kept_out(const BlockedSignals* signals) {
    const auto& key = g_signals_key.get(make_signals_key);
    if (key) pthread_setspecific(*key, signals);
}

sigset_t signals_of_others() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&signals, fault);
    return signals;
}

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
    const sigset_t blocked = signals_of_others();
    pthread_sigmask(SIG_BLOCK, &blocked, &m_before);
}

BlockedSignals::~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &m_before, nullptr); }

SignalsKeptOut::SignalsKeptOut() : m_outer(kept_out()) {
    if (m_outer == nullptr) set_kept_out(&m_blocked);
}

SignalsKeptOut::~SignalsKeptOut() { set_kept_out(m_outer); }

SignalsLetIn::SignalsLetIn() : m_kept_out(kept_out()) {
    if (m_kept_out == nullptr) return;
    set_kept_out(nullptr);
    pthread_sigmask(SIG_SETMASK, &m_kept_out->m_before, nullptr);
}

SignalsLetIn::~SignalsLetIn() {
    if (m_kept_out == nullptr) return;
    const sigset_t blocked = signals_of_others();
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    set_kept_out(m_kept_out);
}

void Changes::tell() {
    ++m_count;
    if (m_waiting.load() != 0) syscall(SYS_futex, &m_count, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Changes::wait_beyond(std::uint32_t seen, double seconds) {
    const SignalsLetIn waiting;
    const double bounded = std::min(1e9, seconds);
    const auto whole = static_cast<std::time_t>(bounded);
    const timespec left = {whole, static_cast<long>(1e9 * (bounded - static_cast<double>(whole)))};
    syscall(SYS_futex, &m_count, FUTEX_WAIT_PRIVATE, seen, seconds < 0 ? nullptr : &left, nullptr, 0);
}

std::thread new_thread(const std::function<void()>& work) {
    const BlockedSignals blocked;
    const ChildrenHere here;
    return std::thread([work] {
        const DefaultFloatingPoint ours;
        work();
    });
}

bool start_thread(const std::function<void()>& work) {
    try {
        new_thread(work).detach();
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

void run_apart(const std::function<void()>& work, const std::function<void(const std::string&)>& take) {
    std::mutex mutex;
    Changes changes;
    bool is_done = false, is_taken = false;
    std::string table;
    std::function<void()> problem;
    const auto attempt = [&](const std::function<void()>& what) {
        try {
            what();
        } catch (const std::exception&) {
            problem = thrower();
        }
    };
    std::thread thread;
    try {
        thread = new_thread([&] {
            if (take_own_descriptors()) table = "/proc/self/task/" + std::to_string(thread_number()) + "/fd/";
            attempt(work);
            std::unique_lock<std::mutex> lock(mutex);
            is_done = true;
            changes.tell();
            changes.wait(lock, [&] { return is_taken; });
        });
    } catch (const std::exception&) {
        attempt(work);
        is_done = true;
    }
    {
        std::unique_lock<std::mutex> lock(mutex);
        changes.wait(lock, [&] { return is_done; });
        if (!problem) attempt([&] { take(table); });
        is_taken = true;
        changes.tell();
    }
    if (thread.joinable()) thread.join();
    if (problem) problem();
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
        for (std::size_t i = 1; i < std::min(count, jobs); ++i) threads.push_back(new_thread(run));
    } catch (const std::exception&) {
        // The system cannot start more threads, so fewer do the work.
    }
    run();
    const SignalsLetIn waiting;
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
