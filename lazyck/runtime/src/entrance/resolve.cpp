// The trampoline (stub_<machine>.S) calls lazyck_resolve with a number. For a slot's number it
// returns the slot's function; for a wrapper's, the function that is wrapped.
#include <locale.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "bundle/manifest_view.h"
#include "error.hpp"
#include "library/blobs.h"
#include "library/kernels.h"
#include "library/library.h"
#include "machine/machine.h"
#include "platform/messages.h"

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

namespace {

constexpr std::size_t k_stack_room = 8 << 20;       // as large as a thread's usually is
constexpr std::size_t k_kept_of_stack = 128 << 10;  // of a spare stack's memory
constexpr std::size_t k_stack_guard = 64 << 10;     // at least one page, whatever the machine's page size

// Spare stacks are kept because making one costs more than a look-up.
std::array<std::atomic<char*>, 4> g_spare_stacks{};

// A stack as large as a thread's, of which only the used part takes real memory, for the work of a
// lazy function's first call. The caller's stack may be small (a fiber, a signal's alternate
// stack): a look-up and the dynamic loader take more than eight kilobytes, a compile twenty. Blobs'
// initializers run on it, since the loader runs them.
class WorkStack {
 public:
    WorkStack() {
        if (LAZYCK_STAYS_ON_STACK) return;
        for (auto& spare : g_spare_stacks) {
            m_bottom = spare.exchange(nullptr, std::memory_order_acq_rel);
            if (m_bottom != nullptr) return;
        }
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
        void* const pages = mmap(nullptr, k_stack_guard + k_stack_room, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (pages == MAP_FAILED) return;
        mprotect(pages, k_stack_guard, PROT_NONE);
        m_bottom = static_cast<char*>(pages) + k_stack_guard;
    }
    WorkStack(const WorkStack&) = delete;
    WorkStack& operator=(const WorkStack&) = delete;
    ~WorkStack() {
        if (m_bottom == nullptr) return;
        madvise(m_bottom, k_stack_room - k_kept_of_stack, MADV_DONTNEED);
        for (auto& spare : g_spare_stacks) {
            char* nothing = nullptr;
            if (spare.compare_exchange_strong(nothing, m_bottom, std::memory_order_acq_rel)) return;
        }
        munmap(m_bottom - k_stack_guard, k_stack_guard + k_stack_room);
    }

    // Calls `work(argument)` on this stack and returns its result. If there is no memory for a
    // stack, the call runs on the caller's. Exceptions pass through.
    void* run(void* (*work)(void*), void* argument) {
        return m_bottom == nullptr ? work(argument) : lazyck_run_on(m_bottom + k_stack_room, work, argument);
    }

 private:
    char* m_bottom = nullptr;  // the page below must not be accessed; null: there is no stack
};

struct ResolverCall {
    std::uint32_t number;
    const std::uintptr_t* arguments;
};

// Ends the process if the loader still relocates the program: the caller is then a resolver of an
// IFUNC. The C library has no locale before, and can neither start a compile nor load a blob.
void refuse_before_start(std::uint32_t number) {
    if (uselocale(nullptr) != nullptr) return;
    const auto size = static_cast<std::size_t>(lazyck_manifest_end - lazyck_manifest);
    const lazyck::rt::ManifestView manifest(lazyck_manifest, size, "embedded manifest");
    const std::string name = number < lazyck_slot_count ? manifest.symbol_name(number) : "a GPU runtime's function";
    const std::string text = "lazyck: " + name +
                             " was called by a resolver (IFUNC) of the program, which runs before a blob can be "
                             "loaded\nlazyck:   hint: leave the source of this function out of --blobs\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    std::abort();
}

// Looks up the function for a call. It is not inlined, so that its frame is on the other stack.
__attribute__((noinline)) void* look_up_function(void* what) {
    const ResolverCall& call = *static_cast<const ResolverCall*>(what);
    refuse_before_start(call.number);
    try {
        if (call.number < lazyck_slot_count)
            return lazyck::rt::Library::get().resolve(call.number, lazyck::rt::machine::return_address(call.arguments));
        return lazyck::rt::wrapped(call.number - lazyck_slot_count, call.arguments);
    } catch (const lazyck::CompileError& e) {
        if (!lazyck::rt::aborts_on_error()) throw;
        lazyck::rt::write_to_error_stream(std::string(e.what()) + "\n");
        std::abort();
    }
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* lazyck_resolve(std::uint32_t number,
                                                                      const std::uintptr_t* arguments) {
    const lazyck::rt::Visit visit;
    WorkStack stack;
    ResolverCall call = {number, arguments};
    return stack.run(look_up_function, &call);
}

// Blobs call these in place of libc's and the C++ library's functions of these names (`AT_EXIT` in
// reveal.py). What they register runs, or keeps its library loaded, as if the library's own code
// had registered it: at a `dlclose` it would run after the library's, whatever was registered last.
extern "C" {

extern __attribute__((visibility("hidden"))) void* __dso_handle;
int __cxa_atexit(void (*work)(void*), void* argument, void* library);
int __cxa_thread_atexit(void (*work)(void*), void* argument, void* library);
int __cxa_at_quick_exit(void (*work)(void*), void* library);

__attribute__((visibility("hidden"))) int lazyck_cxa_atexit(void (*work)(void*), void* argument, void*) {
    return __cxa_atexit(work, argument, &__dso_handle);
}

__attribute__((visibility("hidden"))) int lazyck_cxa_thread_atexit(void (*work)(void*), void* argument, void*) {
    return __cxa_thread_atexit(work, argument, &__dso_handle);
}

// libc's own functions of these names come out of an archive, whose code may lack a mark of
// protected branches (`-z cet-report`).
__attribute__((visibility("hidden"))) int lazyck_atexit(void (*work)()) {
    return __cxa_atexit(reinterpret_cast<void (*)(void*)>(work), nullptr, &__dso_handle);
}

__attribute__((visibility("hidden"))) int lazyck_at_quick_exit(void (*work)()) {
    return __cxa_at_quick_exit(reinterpret_cast<void (*)(void*)>(work), &__dso_handle);
}
}
