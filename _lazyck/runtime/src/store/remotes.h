// Asks the remote caches and the compile service for entries; see remote.h.
#pragma once

#include <memory>
#include <string>

#include "platform/config.h"
#include "platform/files.h"
#include "store/counters.h"
#include "store/jit_policy.h"
#include "store/missing.h"
#include "store/sources.h"

namespace lazyck::rt {

class Remotes {
 public:
    Remotes(const Config& config, const Places& places, const JitPolicy& jit, Counters& counters)
        : m_config(config), m_places(places), m_jit(jit), m_counters(counters) {}

    // Asks for the entry of `key`, which is that of `missing` or of its text. Returns null if there
    // are no remote caches.
    std::unique_ptr<RemoteEntry> ask(const Missing& missing, const EntryKey& key, bool may_compile);
    // Returns the entry, open, as a compile service made it, or an empty descriptor with the reason
    // in `problem`. Throws CompileError if its compiler refused the code.
    UniqueFd compile(const Missing& missing, std::string& origin, std::string& problem);

 private:
    RemoteRequest request_for(const Missing& missing) const;

    const Config& m_config;
    const Places& m_places;
    const JitPolicy& m_jit;
    Counters& m_counters;
};

}  // namespace lazyck::rt
