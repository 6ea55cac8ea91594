// Looks up one entry in the remote caches that LAZYCK_REMOTE names after a cache miss, and sends it
// there once it is compiled; or has it compiled by the service that LAZYCK_REMOTE_COMPILE names. A
// helper process does this (lazyck-remote; docs/remote.md describes the lines that they exchange).
// So a lazy library contains no code for networks and signatures, and does not wait for them once
// it has the entry.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/text.h"
#include "cache/cache.h"
#include "platform/files.h"
#include "platform/messages.h"
#include "platform/staging.h"

namespace lazyck::rt {

struct RemoteCounters {
    std::atomic<std::uint64_t> hits{0};     // entries that came from remotes
    std::atomic<std::uint64_t> refused{0};  // invalid entries, or not signed by a trusted key
    std::atomic<std::uint64_t> skipped{0};  // times that a remote was down or slow
};

struct RemoteRequest {
    std::string helper;       // a path, or a name to look up in PATH
    Subject subject;          // the blob, for messages
    double longest_wait = 0;  // seconds to wait while another host compiles it
    bool may_compile = true;  // false: fetch it if it is there, but wait for no other host
    Strings to_compile;       // for a compile service: the words that tell what to compile; empty: ask the caches
};

class RemoteEntry {
 public:
    // Starts the helper. A failure of the helper is reported and counts as a miss. Throws
    // CompileError only if a compile would fail too. The caller holds the blob's lock.
    RemoteEntry(const RemoteRequest& request, Cache& cache, const EntryKey& key, RemoteCounters& counters);

    // Returns the entry if a remote has one that is whole and defines `symbols`. The entry is open
    // and published in the cache; for the key of a text, it is open but not published. Otherwise
    // the result is empty. If the caller may compile, other hosts then wait for the entry, where
    // the remotes can tell them, until `made` is called or this object ends. Throws CompileError if
    // a compile service could not compile it.
    UniqueFd fetch(const Strings& symbols);

    // Returns the remote that had the entry, after a successful fetch.
    const std::string& label() const { return m_label; }

    // Returns the reason why the last remote was skipped, or an empty string.
    const std::string& problem() const { return m_problem; }

    // Sends the entry at `path` in the cache, which is published, to the remotes in the background.
    void made(const std::string& path);

 private:
    enum class Answer { hit, miss, failed };

    Answer next_answer();
    bool read_line(std::string& line);
    void send(const std::string& line);
    void give_up(const std::string& reason);
    void keep_log(const std::string& otherwise);
    [[noreturn]] void fail_there();

    const RemoteRequest m_request;
    Cache& m_cache;
    const EntryKey m_key;
    RemoteCounters& m_counters;
    StagingDirectory m_staging;
    UniqueFd m_socket;
    std::string m_read;  // what was read beyond the last line
    std::string m_label, m_problem;
    std::string m_failure;  // "final TEXT" or "passing TEXT"
};

}  // namespace lazyck::rt
