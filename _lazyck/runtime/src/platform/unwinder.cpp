// A library that was linked with -static-libgcc has its own copy of the unwinder. To catch an
// exception that another copy throws, functions of the catching frame's copy are called
// (_Unwind_SetGR). They abort unless that copy has unwound something before, because libgcc fills
// its table of register sizes at the first unwinding. So each copy is made to look at one frame.
#include "platform/unwinder.h"

#include <dlfcn.h>
#include <unwind.h>

#include <atomic>

namespace lazyck::rt {

namespace {

_Unwind_Reason_Code stop(_Unwind_Context*, void*) { return _URC_END_OF_STACK; }

}  // namespace

void introduce_unwinders(void* handle) {
    static std::atomic<bool> s_has_looked{false};
    if (!s_has_looked.exchange(true)) _Unwind_Backtrace(stop, nullptr);
    const auto theirs = reinterpret_cast<decltype(&_Unwind_Backtrace)>(dlsym(handle, "_Unwind_Backtrace"));
    if (theirs != nullptr && theirs != &_Unwind_Backtrace) theirs(stop, nullptr);
}

}  // namespace lazyck::rt
