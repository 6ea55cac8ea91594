// Looks up entries in the caches of a library, and knows these caches.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bundle/manifest_view.h"
#include "cache/caches.h"
#include "cache/costs.h"
#include "cache/entry.h"
#include "platform/config.h"
#include "store/sources.h"

namespace lazyck::rt {

// Counts what a library's blobs cost this process; see lazyck_stats.
struct Counters {
    std::atomic<std::uint64_t> hits{0}, misses{0}, compiles{0}, failures{0}, damaged{0}, compile_ns{0};
    std::atomic<std::uint64_t> remote_hits{0}, remote_refused{0}, remote_skipped{0};
};

class Lookup {
 public:
    // `mutex` guards which caches there are. It is held for moments only.
    Lookup(const Config& config, const Places& places, Counters& counters, std::mutex& mutex)
        : m_config(config), m_places(places), m_counters(counters), m_mutex(mutex) {}

    // Returns the caches, which are made at the first use.
    std::shared_ptr<Caches> caches(const ManifestView& manifest);
    // Returns the key by which the entry is looked up.
    EntryKey key_of(const ManifestView& manifest, const BlobRow& blob, const Strings& archs) const;

    // Returns the verified entry if a cache has it. Throws CompileError.
    std::optional<Entry> find(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key);
    // Returns whether a cache has the entry, and sets `path` to where it is, or would be in the
    // user's own cache.
    bool is_cached(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key, std::string& path);
    // Returns an entry that was made from a text, from any of the caches; see texts.h.
    UniqueFd find_text(const ManifestView& manifest, const EntryKey& text, const Strings& symbols);

    // Returns the expected cost of a compile, from a cache's records and the figures that came with
    // the library.
    Guess guess(const ManifestView& manifest, const Costs& costs) const;
    // Returns the file in which events of this library are recorded, or an empty string if there is
    // no cache.
    std::string history(const ManifestView& manifest);

    // Sets the cache directory. Throws CompileError if `path` cannot be a cache.
    void set_cache_dir(const std::string& path);
    void forget_bad_places();
    void close();
    // The caller holds the mutex. The caches' own locks may be held by threads that the child does
    // not have, so the caches are leaked.
    void after_fork_in_child();

 private:
    std::string name_of(const ManifestView& manifest) const;

    const Config& m_config;
    const Places& m_places;
    Counters& m_counters;
    std::mutex& m_mutex;
    std::shared_ptr<Caches> m_caches;
    std::string m_given;  // by set_cache_dir
};

}  // namespace lazyck::rt
