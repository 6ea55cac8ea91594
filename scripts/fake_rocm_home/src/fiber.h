// Provides a stack that one GPU thread runs on, and the switch between it and the scheduler.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace fake_rocm {

class Fiber {
 public:
    // Creates a fiber; returns nullptr if there is no memory. `body` never returns: it runs one
    // thread after another, and leaves by suspend().
    static std::unique_ptr<Fiber> create(void (*body)());
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    void resume();   // called by the scheduler
    void suspend();  // called by the fiber

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
