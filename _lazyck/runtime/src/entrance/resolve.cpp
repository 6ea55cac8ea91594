// The trampoline (stub_<machine>.S) calls lazyck_resolve with a number. For a slot's number it
// returns the slot's function; for a wrapper's, the function that is wrapped.
#include <pthread.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "error.hpp"
#include "library/kernels.h"
#include "library/library.h"
#include "platform/messages.h"
#include "platform/threads.h"
#include "platform/work_stack.h"

namespace {

// Keeps what the caller does not expect a call to change: errno, and whether the thread can be
// cancelled. Its cancellation is deferred until its compile is finished: others wait for it, and
// cancelling would unwind through code that catches exceptions.
class Undisturbed {
 public:
    Undisturbed() : m_errno(errno) { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &m_cancels); }
    Undisturbed(const Undisturbed&) = delete;
    Undisturbed& operator=(const Undisturbed&) = delete;
    ~Undisturbed() {
        pthread_setcancelstate(m_cancels, nullptr);
        errno = m_errno;
    }

 private:
    const int m_errno;
    int m_cancels = PTHREAD_CANCEL_ENABLE;
};

struct Call {
    std::uint32_t number;
    const std::uintptr_t* arguments;
};

// Returns the return address that the trampoline saved, or null if it saves none.
const void* return_address_of([[maybe_unused]] const std::uintptr_t* arguments) {
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(arguments[4]);
#else
    return nullptr;
#endif
}

// Looks up the function for a call. It is not inlined, so that its frame is on the other stack.
__attribute__((noinline)) void* resolve(void* what) {
    const Call& call = *static_cast<const Call*>(what);
    try {
        if (call.number < lazyck_slot_count)
            return lazyck::rt::Library::get().resolve(call.number, return_address_of(call.arguments));
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
    const Undisturbed undisturbed;
    const lazyck::rt::DefaultFloatingPoint ours;
    lazyck::rt::WorkStack stack;
    Call call = {number, arguments};
    return stack.run(resolve, &call);
}
