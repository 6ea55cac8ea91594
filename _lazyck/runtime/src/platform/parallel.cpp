#include "platform/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "error.hpp"
#include "platform/floating_point.h"
#include "platform/threads.h"

namespace lazyck::rt {
namespace {

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

}  // namespace lazyck::rt
