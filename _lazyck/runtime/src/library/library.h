// The lazy library that this runtime is linked into: what its stubs, its handles and the interface
// for programs ask for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lazyck.h"
#include "library/blobs.h"
#include "library/entries.h"
#include "library/host_units.h"
#include "library/kernels.h"
#include "library/loader.h"
#include "library/prefetching.h"
#include "library/readiness.h"
#include "library/recorder.h"
#include "library/siblings.h"
#include "library/speculation.h"
#include "library/states.h"
#include "record/prefetch.h"
#include "store/store.h"

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

    // Returns what makes blobs ready in the background.
    Prefetching& prefetching() { return m_prefetching; }

    std::uint32_t blob_count() const { return m_blobs.count(); }
    // Returns nullptr if there is no blob of this number.
    const char* blob_name(BlobId index) const { return m_blobs.name(index); }
    // Returns whether a cache has what a call would load. Throws CompileError for a name that no
    // blob has.
    bool is_cached(const std::string& name);

    // Records in the profile at `path` which blobs are called from now on. An empty path ends the
    // record.
    void record(const std::string& path) { m_recorder.record(path); }

    // Makes those blobs ready after a blob's first call that the profile at `path` shows to follow
    // it, one at a time in the background. An empty path ends that. Throws CompileError if the
    // profile cannot be read.
    void speculate(const std::string& path) { m_speculation.follow(path); }

    bool forbid_jit(bool is_forbidden) { return m_store.shop.jit.forbid(is_forbidden); }
    void set_listener(Events::Callback listener) { m_store.shop.events.set_listener(std::move(listener)); }

    // Forgets the failures that later calls would fail with. Returns the number of blobs concerned.
    int clear_failures();

    // Sets the cache for blobs that are not loaded yet. Throws CompileError if `path` cannot be a
    // cache.
    void set_cache_dir(const std::string& path);

    lazyck_stats stats();

    // Waits until nothing is in flight, at most `seconds` (negative: for ever), and returns whether
    // that is so.
    bool drain(double seconds) { return m_states.drain(seconds); }

 private:
    Library(const Config& config, std::string path);
    static void before_fork();
    static void after_fork_in_parent();
    static void after_fork_in_child();
    static void at_exit();

    void begin();
    const void* image_of(const HostUnit& unit, const Handle& handle, bool& is_whole);
    void* first_function(BlobId blob);
    void* function_for_call(BlobId blob, std::uint32_t number);

    // Each uses those above it.
    const Blobs m_blobs;
    States m_states;
    Store m_store;
    HostUnits m_host_units;
    Recorder m_recorder;
    Entries m_entries;
    Loader m_loader;
    Siblings m_siblings;
    Readiness m_readiness;
    Speculation m_speculation;
    Prefetching m_prefetching;
    std::unique_ptr<Prefetch> m_prefetch;  // of LAZYCK_PREFETCH
};

}  // namespace lazyck::rt
