// A stack of our own for what a lazy function's first call does. The caller's may be small (a fiber, a signal's
// alternate stack): a look-up and the dynamic loader take more than eight kilobytes, a compile twenty.
#pragma once

namespace lazyck::rt {

// Room like a thread's, of which only what is used is real memory. Blobs' initializers run on it, as the loader runs
// them.
class WorkStack {
 public:
    WorkStack();
    WorkStack(const WorkStack&) = delete;
    WorkStack& operator=(const WorkStack&) = delete;
    ~WorkStack();

    // Calls `work(argument)` on this stack and returns what it returns; on the caller's, where there is no memory for
    // one. Exceptions pass through.
    void* run(void* (*work)(void*), void* argument);

 private:
    char* m_bottom;  // below it lies a page that nobody may touch; null: there is none
};

}  // namespace lazyck::rt
