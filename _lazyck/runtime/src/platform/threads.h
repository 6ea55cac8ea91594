// Starts the runtime's own threads within other people's processes, and has the locks among them.
#pragma once

#include <signal.h>

#include <cstddef>
#include <functional>
#include <mutex>

namespace lazyck::rt {

// Blocks all signals for the calling thread, and for threads that it starts, until the object is
// destroyed. Signals are for the program's own threads, which expect them.
class BlockedSignals {
 public:
    BlockedSignals();
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;
    ~BlockedSignals();

 private:
    sigset_t m_before;
};

// Runs `work`, which must not throw, on a detached thread. Returns false if the system cannot start
// one. The library must stay loaded.
bool start_thread(std::function<void()> work);

// Returns the calling thread's number, as the kernel and profilers report it.
long thread_number();

// Calls work(0) to work(count - 1) on at most `jobs` threads. If calls throw, the others are still
// made; then the first exception is thrown.
void for_each_in_parallel(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& work);

// The locks of what exists once in a library. Each is held for moments only: never while the
// dynamic loader, the C library's name services or locale, or code of the program may run, and
// never while another one is taken. They are together so that a fork can take all of them, since
// the child has none of the threads that could release one.
enum class Shared { descriptors_of_locks, warnings_said, archs_of_devices };

std::mutex& lock_of(Shared what);

// Handlers of fork.
void global_locks_before_fork();
void global_locks_after_fork();

}  // namespace lazyck::rt
