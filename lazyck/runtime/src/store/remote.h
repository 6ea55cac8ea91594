// Looks up one entry in the remote caches that LAZYCK_REMOTE names after a cache miss, and sends it
// there once it is compiled; or has it compiled by the service that LAZYCK_REMOTE_COMPILE names. A
// helper process does this (lazyck-remote; docs/remote.md describes the lines that they exchange).
// So a lazy library contains no code for networks and signatures, and does not wait for them once
// it has the entry.
#pragma once

#include <string>

#include "lazyck_abi.h"
#include "platform/staging.h"
#include "store/store.h"

namespace lazyck::rt {

class RemoteEntry {
 public:
    // Starts the helper, which looks for the entry of `key`, that of `missing` or of its text.
    // Without `may_compile`, it waits for no other host. `to_compile` has the words that tell a
    // compile service what to compile; without them, the caches are asked. A failure of the helper
    // is reported and counts as a miss. Throws CompileError only if a compile would fail too. The
    // caller holds the blob's lock.
    RemoteEntry(const Missing& missing, const EntryKey& key, bool may_compile, Strings to_compile = {});

    // Returns the entry if a remote has one that is whole and defines the symbols. The entry is
    // open and published in the cache; for the key of a text, it is open but not published.
    // Otherwise the result is empty. If the caller may compile, other hosts then wait for the
    // entry, where the remotes can tell them, until `made` is called or this object ends. Throws
    // CompileError if a compile service could not compile it.
    UniqueFd fetch();

    // Returns "remote " and the one that had the entry, after a successful fetch.
    std::string origin() const { return LAZYCK_ORIGIN_REMOTE " " + m_label; }

    // Returns the reason why the last remote was skipped, or an empty string.
    const std::string& problem() const { return m_problem; }

    // Sends the missing entry, which is published now, to the remotes in the background.
    void made() { send(LAZYCK_LINE_MADE " " + m_missing.path); }

 private:
    bool is_hit();
    bool read_line(std::string& line);
    void send(const std::string& line);
    bool give_up(const std::string& reason);
    void keep_log(const std::string& otherwise);
    [[noreturn]] void fail_there(const std::string& reason, bool is_final);

    const Missing& m_missing;
    const EntryKey m_key;
    const Strings m_to_compile;
    StagingDirectory m_staging;
    UniqueFd m_socket;
    std::string m_read;  // what was read beyond the last line
    std::string m_label, m_problem;
};

// Returns the entry, open, as a compile service made it, or an empty descriptor with the reason in
// `problem`. Throws CompileError if its compiler refused the code.
UniqueFd compile_at_service(const Missing& missing, std::string& origin, std::string& problem);

}  // namespace lazyck::rt
