#include "platform/work_stack.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>

// Calls `work(argument)` with the stack pointer at `top`. It is defined in stub_<machine>.S.
extern "C" __attribute__((visibility("hidden"))) void* lazyck_run_on(void* top, void* (*work)(void*), void* argument);

// The address sanitizer knows the bounds of a thread's stack, and takes an exception on another
// stack for an error.
#if defined(__SANITIZE_ADDRESS__)
#define LAZYCK_STAYS_ON_STACK 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LAZYCK_STAYS_ON_STACK 1
#endif
#endif
#ifndef LAZYCK_STAYS_ON_STACK
#define LAZYCK_STAYS_ON_STACK 0
#endif

namespace lazyck::rt {

namespace {

constexpr std::size_t k_size = 8 << 20;    // as large as a thread's usually is
constexpr std::size_t k_kept = 128 << 10;  // of a spare stack's memory
constexpr std::size_t k_guard = 64 << 10;  // at least one page, whatever the machine's page size

// Spare stacks are kept because making one costs more than a look-up.
std::array<std::atomic<char*>, 4> g_spare{};

char* make_stack() {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    void* const place = mmap(nullptr, k_guard + k_size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (place == MAP_FAILED) return nullptr;
    mprotect(place, k_guard, PROT_NONE);
    return static_cast<char*>(place) + k_guard;
}

}  // namespace

WorkStack::WorkStack() : m_bottom(nullptr) {
    if (LAZYCK_STAYS_ON_STACK) return;
    for (auto& spare : g_spare) {
        m_bottom = spare.exchange(nullptr, std::memory_order_acq_rel);
        if (m_bottom != nullptr) return;
    }
    m_bottom = make_stack();
}

WorkStack::~WorkStack() {
    if (m_bottom == nullptr) return;
    madvise(m_bottom, k_size - k_kept, MADV_DONTNEED);
    for (auto& spare : g_spare) {
        char* nothing = nullptr;
        if (spare.compare_exchange_strong(nothing, m_bottom, std::memory_order_acq_rel)) return;
    }
    munmap(m_bottom - k_guard, k_guard + k_size);
}

void* WorkStack::run(void* (*work)(void*), void* argument) {
    return m_bottom == nullptr ? work(argument) : lazyck_run_on(m_bottom + k_size, work, argument);
}

}  // namespace lazyck::rt
