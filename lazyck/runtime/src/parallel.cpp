#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace lazyck::rt {

void for_each_in_parallel(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr problem;
    const auto run = [&] {
        for (std::size_t i = next++; i < count; i = next++) {
            try {
                work(i);
            } catch (...) {
                const std::lock_guard<std::mutex> guard(mutex);
                if (!problem) problem = std::current_exception();
            }
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < std::min(count, jobs); ++i) threads.emplace_back(run);
    run();
    for (std::thread& thread : threads) thread.join();
    if (problem) std::rethrow_exception(problem);
}

}  // namespace lazyck::rt
