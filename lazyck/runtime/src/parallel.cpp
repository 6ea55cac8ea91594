#include "parallel.h"

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
#include "floating_point.h"
#include "threads.h"

namespace lazyck::rt {
namespace {

// Within a handler: what throws the exception at hand once more, in another thread. std::exception_ptr does so, but
// other libraries export copies of its code, and a linker would have the lazy library need them (see cxx_library.cpp).
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
        // The system has no more threads to give: fewer do.
    }
    run();
    for (std::thread& thread : threads) thread.join();
    if (problem) problem();
}

}  // namespace lazyck::rt
