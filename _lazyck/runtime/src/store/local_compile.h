// Compiles one entry in this process, by the library's own compiler.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cache/cache.h"
#include "cache/entry.h"
#include "compile/compile.h"
#include "platform/config.h"
#include "record/events.h"
#include "store/counters.h"
#include "store/job_permits.h"
#include "store/lookup.h"
#include "store/missing.h"
#include "store/permits.h"
#include "store/remotes.h"
#include "store/sources.h"

namespace lazyck::rt {

// What local compiles share.
struct Workshop {
    const Config& config;
    const Places& places;
    Counters& counters;
    Events& events;
    Lookup& lookup;
    Sources& sources;
    JobPermits& permits;
    Remotes& remotes;
};

class LocalCompile {
 public:
    LocalCompile(const Workshop& shop, const Missing& missing) : m_shop(shop), m_missing(missing) {}
    LocalCompile(const LocalCompile&) = delete;
    LocalCompile& operator=(const LocalCompile&) = delete;

    // Waits for permits, compiles the entry, and returns it, published. The permits are held, and
    // the event goes on, until this object ends. The caller holds the entry's lock. Throws
    // CompileError.
    Entry run();

    // Sends the entry to the remote caches under the key of its text, too, if they lacked it.
    void send_text();

 private:
    void describe();
    void use_preamble();
    void ask_for_text();
    void take_permits();
    void compile();

    const Workshop& m_shop;
    const Missing& m_missing;
    SourceFile m_source = {};
    CompileRequest m_request;
    std::string m_preamble;
    bool m_is_preamble_refused = false;
    std::unique_ptr<RemoteEntry> m_remote_text;
    std::optional<HeldPermit> m_permit;
    std::optional<HostPermit> m_host_permit;
    std::optional<Span> m_span;
    Cost m_cost;
    Made m_made;
};

}  // namespace lazyck::rt
