// Runs independent work on several threads, and waits for all of them.
#pragma once

#include <cstddef>
#include <functional>

namespace lazyck::rt {

// Calls work(0) to work(count - 1) on at most `jobs` threads. If calls throw, the others are still
// made; then the first exception is thrown.
void for_each_in_parallel(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& work);

}  // namespace lazyck::rt
