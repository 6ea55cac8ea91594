// Threads of ours within other people's processes.
#pragma once

#include <signal.h>

#include <functional>

namespace lazyck::rt {

// Blocks all signals of the calling thread, and of those that it starts, until the object's end: signals are for the
// program's own threads, which expect them.
class BlockedSignals {
 public:
    BlockedSignals();
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;
    ~BlockedSignals();

 private:
    sigset_t m_before;
};

// Runs `work`, which must not throw, on a thread of its own that nobody waits for. False: the system has no thread to
// give. The library must stay loaded.
bool start_thread(std::function<void()> work);

// The calling thread's number, as the kernel and profilers have it.
long thread_number();

}  // namespace lazyck::rt
