// Where the trampoline (stub_<machine>.S) comes in: a slot's number → its function.
#include <pthread.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "config.h"
#include "error.hpp"
#include "error_stream.h"
#include "floating_point.h"
#include "library.h"
#include "work_stack.h"

namespace {

// The caller does not expect a call to change errno.
class KeptErrno {
 public:
    KeptErrno() : m_value(errno) {}
    KeptErrno(const KeptErrno&) = delete;
    KeptErrno& operator=(const KeptErrno&) = delete;
    ~KeptErrno() { errno = m_value; }

 private:
    int m_value;
};

// A cancelled thread finishes its compile: others wait for it, and cancelling would unwind through code that catches.
class Uncancelled {
 public:
    Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &m_before); }
    Uncancelled(const Uncancelled&) = delete;
    Uncancelled& operator=(const Uncancelled&) = delete;
    ~Uncancelled() { pthread_setcancelstate(m_before, nullptr); }

 private:
    int m_before = PTHREAD_CANCEL_ENABLE;
};

// Not inlined: what it needs is to be on the other stack.
__attribute__((noinline)) void* resolve(void* slot) {
    try {
        return lazyck::rt::Library::get().resolve(*static_cast<const std::uint32_t*>(slot));
    } catch (const lazyck::CompileError& e) {
        if (!lazyck::rt::aborts_on_error()) throw;
        lazyck::rt::write_to_error_stream(std::string(e.what()) + "\n");
        std::abort();
    }
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* lazyck_resolve(std::uint32_t slot) {
    const KeptErrno kept;
    const Uncancelled uncancelled;
    const lazyck::rt::DefaultFloatingPoint ours;
    lazyck::rt::WorkStack stack;
    return stack.run(resolve, &slot);
}
