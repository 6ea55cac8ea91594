// The lazy library that this runtime is linked into: its slots, its blobs, and what has become of each.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "error.hpp"
#include "files.h"
#include "lazyck.h"
#include "manifest_view.h"
#include "store.h"

namespace lazyck::rt {

class Library {
 public:
    // The one of this library, made at the first use; nothing runs when the library is loaded. Throws CompileError, and
    // the next call tries again.
    static Library& get();

    // Stores all slots of the blob of slot `slot`, and returns that slot's function.
    void* resolve(std::uint32_t slot);

    // Makes ready all blobs whose names match; returns how many. Throws CompileError.
    int prefetch(const char* pattern);

    // Forgets the failures that later calls would be answered with; returns of how many blobs.
    int clear_failures();

    // For blobs that are not loaded yet. Throws CompileError when `path` cannot be a cache.
    void set_cache_dir(const std::string& path);

    lazyck_stats stats();

 private:
    // A blob in the embedded manifest, or, after those, in the one that LAZYCK_MANIFEST names.
    using BlobId = std::uint32_t;

    struct BlobState {
        bool is_busy = false;  // a thread obtains the entry
        bool is_loaded = false;
        int owner_pid = 0;
        std::thread::id owner;
        std::uint64_t attempts = 0;
        std::shared_ptr<const Entry> entry;
        std::shared_ptr<const CompileError> failure;  // of the last attempt
        bool is_failure_final = false;                // it is the answer to later calls too, for these archs
        Strings failed_archs;
    };

    struct Row {
        const ManifestView& manifest;
        std::uint32_t index;
    };

    Library(const Config& config, std::string path);
    static void before_fork();
    static void after_fork_in_parent();
    static void after_fork_in_child();

    Row row(BlobId blob) const;
    BlobId blob_of_slot(std::uint32_t slot) const;
    bool is_loaded(BlobId blob);
    void make_ready(BlobId blob);
    std::shared_ptr<const Entry> obtain(BlobId blob, const Strings& archs);
    void load(BlobId blob, const Entry& entry);
    void forget(BlobId blob, const Entry& entry);

    std::string m_path;
    ManifestView m_embedded;
    MappedFile m_fallback_file;
    ManifestView m_fallback;
    Store m_store;

    // Held for moments only: never while compiling, and never while the dynamic loader works, whose lock a static
    // initializer of a blob that calls another blob holds while it waits here.
    std::mutex m_mutex;
    std::unique_ptr<std::condition_variable> m_changed;
    std::unordered_map<BlobId, BlobState> m_states;
};

}  // namespace lazyck::rt
