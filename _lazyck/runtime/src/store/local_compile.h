// Compiles one entry in this process, by the library's own compiler.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cache/entry.h"
#include "compile/compile.h"
#include "store/missing.h"
#include "store/remote.h"

namespace lazyck::rt {

class LocalCompile {
 public:
    explicit LocalCompile(const Missing& missing) : m_missing(missing), m_shop(missing.shop) {}
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

    const Missing& m_missing;
    Workshop& m_shop;
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
