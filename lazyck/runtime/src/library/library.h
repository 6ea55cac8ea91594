// Serves the stubs and handles of the lazy library that this runtime is linked into.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "library/kernels.h"
#include "library/readiness.h"
#include "platform/threads.h"

namespace lazyck::rt {

// The time that the runtime works for the program, in a thread of the program's. Each way into the
// runtime begins with one. It keeps what the caller does not expect a call to change: errno, the
// floating-point settings, and whether the thread can be cancelled. The thread's cancellation is
// deferred until its call is finished: others wait for it, and cancelling would unwind through code
// that catches exceptions.
//
// A handler of fork that the program registered before ours calls while this thread holds all our
// locks. They are free during the visit.
class Visit {
 public:
    Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit() noexcept(false);  // a thread that may be cancelled at any time ends here

 private:
    const int m_errno;
    const SignalsKeptOut m_signals;
    const bool m_is_forking;
    int m_cancels = PTHREAD_CANCEL_ENABLE, m_cancel_type = PTHREAD_CANCEL_DEFERRED;
    const DefaultFloatingPoint m_ours;
};

class Library {
 public:
    // Returns the object of this library, which is made at the first use; nothing runs when the
    // library is loaded. Throws CompileError; the next call tries again.
    static Library& get();

    // Stores all slots of the blob of slot `slot`, and returns that slot's function. `caller` is an
    // address in the code of the caller, or null.
    void* resolve(std::uint32_t slot, const void* caller);

    // Makes the device code that a handle needs ready, and returns it. It is that of the handle's
    // kernel or, if `is_whole` is set, of the whole source. Throws CompileError.
    const void* image_for(const Handle& handle, bool& is_whole);

    Core core;
    Readiness readiness{core};

 private:
    Library(const Config& config, std::string path) : core(config, std::move(path)) {}
    void begin();
    void* function_for_call(BlobId blob, std::uint32_t number = 0, const Call& call = {});

    std::unique_ptr<Prefetch> m_prefetch;  // of LAZYCK_PREFETCH
};

}  // namespace lazyck::rt
