// One entry in the remote caches that LAZYCK_REMOTE names: looked for on a miss, and sent there once it is compiled. A
// helper process does it (lazyck-remote; docs/remote.md has the lines that they exchange), so that a lazy library knows
// nothing of networks and signatures, and waits for none of them once it has what it wants.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "cache.h"
#include "files.h"
#include "messages.h"
#include "staging.h"
#include "text.h"

namespace lazyck::rt {

struct RemoteCounters {
    std::atomic<std::uint64_t> hits{0};     // entries that came from there
    std::atomic<std::uint64_t> refused{0};  // that were not what they should be, or not signed by whom we trust
    std::atomic<std::uint64_t> skipped{0};  // times that a remote was down or slow
};

struct RemoteRequest {
    std::string helper;           // a path, or a name to look for in PATH
    Subject subject;              // the blob, for messages
    double expected_seconds = 0;  // that compiling it takes; 0: not known
    double longest_wait = 0;      // seconds, while another host compiles it
    bool may_compile = true;      // false: take it if it is there, wait for nobody
};

class RemoteEntry {
 public:
    // Starts the helper. Whatever goes wrong with it is said, and is a miss; throws CompileError only where a compile
    // would fail too. The caller holds the blob's lock.
    RemoteEntry(const RemoteRequest& request, Cache& cache, const EntryKey& key, RemoteCounters& counters);

    // The entry, published in the cache and open (for the key of a text open, and not published), once it was found, is
    // whole and defines `symbols`; else empty, and then, if the caller may compile, other hosts wait for it, where the
    // remotes can tell them, until it says `made` or this object ends.
    UniqueFd fetch(const Strings& symbols);

    // Which remote had it, after a fetch that succeeded.
    const std::string& label() const { return m_label; }

    // Has the entry at `path` of the cache, which is published now, sent on in the background.
    void made(const std::string& path);

 private:
    enum class Answer { hit, miss };

    Answer next_answer();
    bool read_line(std::string& line);
    void send(const std::string& line);
    void give_up(const std::string& reason);

    const RemoteRequest m_request;
    Cache& m_cache;
    const EntryKey m_key;
    RemoteCounters& m_counters;
    StagingDirectory m_staging;
    UniqueFd m_socket;
    std::string m_read;  // beyond the last line
    std::string m_label;
};

}  // namespace lazyck::rt
