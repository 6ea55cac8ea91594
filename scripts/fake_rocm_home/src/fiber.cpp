#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace fake_rocm {
namespace {

// The stack is only reserved: a page is taken when a thread touches it.
constexpr size_t k_stack_bytes = 256 << 10;

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

#if defined(__x86_64__)

// Saves what a call must preserve, and returns to the address on the other stack. swapcontext()
// would make two system calls per switch, and a barrier in a block of 1024 threads makes 1024
// switches.
extern "C" void fake_rocm_switch(void** save_sp, void* to_sp);
__asm__(R"(
.text
.globl fake_rocm_switch
.hidden fake_rocm_switch
.type fake_rocm_switch, @function
fake_rocm_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size fake_rocm_switch, . - fake_rocm_switch
)");

void Fiber::resume() { fake_rocm_switch(&m_scheduler_sp, m_fiber_sp); }
void Fiber::suspend() { fake_rocm_switch(&m_fiber_sp, m_scheduler_sp); }

#else

void Fiber::resume() { swapcontext(&m_scheduler, &m_fiber); }
void Fiber::suspend() { swapcontext(&m_fiber, &m_scheduler); }

#endif

std::unique_ptr<Fiber> Fiber::create(void (*body)()) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    void* stack = mmap(nullptr, k_stack_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (stack == MAP_FAILED) return nullptr;
    // A kernel that overflows its stack must fault, not write into its neighbour's.
    mprotect(stack, page_bytes(), PROT_NONE);
    std::unique_ptr<Fiber> fiber(new Fiber);
    fiber->m_stack = stack;
#if defined(__x86_64__)
    // The first switch pops six registers and returns into body. body finds the stack as after a
    // call: the return address makes it 8 bytes below a multiple of 16.
    auto* top = reinterpret_cast<uintptr_t*>(static_cast<char*>(stack) + k_stack_bytes);
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(body);
    for (int i = 0; i < 6; ++i) *--top = 0;
    fiber->m_fiber_sp = top;
#else
    getcontext(&fiber->m_fiber);
    fiber->m_fiber.uc_stack.ss_sp = stack;
    fiber->m_fiber.uc_stack.ss_size = k_stack_bytes;
    fiber->m_fiber.uc_link = nullptr;
    makecontext(&fiber->m_fiber, body, 0);
#endif
    return fiber;
}

Fiber::~Fiber() { munmap(m_stack, k_stack_bytes); }

}  // namespace fake_rocm
