// A stack that one GPU thread runs on, and the switch between it and the scheduler.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace fake_rocm {

class Fiber {
 public:
    // `body` never returns: it runs one thread after another, and leaves by suspend(). nullptr: no memory.
    static std::unique_ptr<Fiber> create(void (*body)());
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    void resume();   // from the scheduler
    void suspend();  // from the fiber

 private:
    Fiber() = default;

    void* m_stack = nullptr;
#if defined(__x86_64__)
    void* m_fiber_sp = nullptr;
    void* m_scheduler_sp = nullptr;
#else
    ucontext_t m_fiber;
    ucontext_t m_scheduler;
#endif
};

}  // namespace fake_rocm
