// Provides a stack for the work of a lazy function's first call. The caller's stack may be small (a
// fiber, a signal's alternate stack): a look-up and the dynamic loader take more than eight
// kilobytes, a compile twenty.
#pragma once

namespace lazyck::rt {

// Allocates a stack as large as a thread's, of which only the used part takes real memory. Blobs'
// initializers run on it, since the loader runs them.
class WorkStack {
 public:
    WorkStack();
    WorkStack(const WorkStack&) = delete;
    WorkStack& operator=(const WorkStack&) = delete;
    ~WorkStack();

    // Calls `work(argument)` on this stack and returns its result. If there is no memory for a
    // stack, the call runs on the caller's. Exceptions pass through.
    void* run(void* (*work)(void*), void* argument);

 private:
    char* m_bottom;  // the page below must not be accessed; null: there is no stack
};

}  // namespace lazyck::rt
