// Serves the stubs and handles of the lazy library that this runtime is linked into.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "library/kernels.h"
#include "library/readiness.h"

namespace lazyck::rt {

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
