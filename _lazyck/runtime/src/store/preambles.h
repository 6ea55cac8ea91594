// Decides which precompiled preambles (see preamble.h) are made and used, and makes them.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "bundle/manifest_view.h"
#include "platform/config.h"
#include "store/jit_policy.h"
#include "store/job_permits.h"
#include "store/lookup.h"
#include "store/sources.h"

namespace lazyck::rt {

class Preambles {
 public:
    // `mutex` guards which preambles were considered. It is held for moments only.
    Preambles(const Config& config, const Places& places, const JitPolicy& jit, Lookup& lookup, Sources& sources,
              JobPermits& permits, std::mutex& mutex);

    // Returns the key that is equal for blobs that can share a preamble: a digest of all that
    // decides the preamble's contents. The key is empty if the blob has no preamble.
    std::string key_of(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Makes the preamble of blob `index` in the cache, where compiles find it, unless it is there.
    // Returns an empty string, or the reason why there is none. Throws CompileError.
    std::string make(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Returns whether a process that has just compiled the blob may soon compile others that share
    // its preamble. It returns true at most once for all blobs that are compiled alike.
    bool should_make(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Returns the directory of the preamble for a compile of `source`, or an empty string if there
    // is none. Throws CompileError if others could have written it.
    static std::string find(const ManifestView& manifest, const BlobRow& blob, const Strings& archs,
                            const SourceFile& source, const Cache& cache);

 private:
    const Config& m_config;
    const Places& m_places;
    const JitPolicy& m_jit;
    Lookup& m_lookup;
    Sources& m_sources;
    JobPermits& m_permits;
    std::mutex& m_mutex;
    std::set<std::pair<const void*, std::uint32_t>> m_considered;  // recipes
};

}  // namespace lazyck::rt
