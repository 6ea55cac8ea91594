// The lazy library that this runtime is linked into: what its stubs, its handles and the interface
// for programs ask for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lazyck.h"
#include "library/core.h"
#include "library/kernels.h"
#include "library/loader.h"
#include "library/readiness.h"
#include "library/recorder.h"
#include "library/speculation.h"
#include "record/prefetch.h"

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

    // Makes all blobs whose names match ready, and returns how many. Throws CompileError.
    int prefetch(const char* pattern);

    // Returns whether a cache has what a call would load. Throws CompileError for a name that no
    // blob has.
    bool is_cached(const std::string& name);

    // Forgets the failures that later calls would fail with. Returns the number of blobs concerned.
    int clear_failures();

    // Sets the cache for blobs that are not loaded yet. Throws CompileError if `path` cannot be a
    // cache.
    void set_cache_dir(const std::string& path);

    lazyck_stats stats();

    // Each uses those above it.
    Core core;
    Recorder recorder{core};
    Loader loader{core, recorder};
    Readiness readiness{core, loader};
    Speculation speculation{core, readiness};

 private:
    Library(const Config& config, std::string path) : core(config, std::move(path)) {}
    static void before_fork();
    static void after_fork_in_parent();
    static void after_fork_in_child();
    static void at_exit();

    void begin();
    const void* image_of(const HostUnit& unit, const Handle& handle, bool& is_whole);
    void* function_for_call(BlobId blob, std::uint32_t number = 0, const Call& call = {});

    std::unique_ptr<Prefetch> m_prefetch;  // of LAZYCK_PREFETCH
};

}  // namespace lazyck::rt
