// Starts the runtime's own threads within other people's processes.
#pragma once

#include <signal.h>

#include <functional>

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

}  // namespace lazyck::rt
