// Keeps a cache below a size: removes the entries that have been unused for longest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "cache/directory.h"

namespace lazyck::rt {

// Calls `use` with the directory and the name of each entry. Calls `refused` with the path of each
// directory below `root` from which the runtime would load nothing, and the reason. Throws
// CompileError if `root` itself cannot be read or is refused.
void for_each_entry(const std::string& root, const std::function<void(const Directory&, const std::string&)>& use,
                    const Refused& refused);

struct TrimRequest {
    std::uint64_t most_bytes = UINT64_MAX;  // that may stay
    double oldest_seconds = -1;             // that an entry may stay after its last use; negative: without a limit
    bool is_dry = false;                    // only report what would be removed
    // Paths of entries, or of the directories that hold them, that may be removed. If not set, any
    // may.
    std::optional<std::set<std::string>> only{};
};

struct TrimOutcome {
    // entries; the bytes include logs and preambles
    std::uint64_t kept = 0, kept_bytes = 0, removed = 0, removed_bytes = 0;
    std::uint64_t removed_logs = 0, removed_preambles = 0, removed_texts = 0;  // logs of failures
};

struct TrimmedEntry {
    std::string path;
    std::uint64_t bytes = 0;  // with all files beside it
    double last_use = 0;      // seconds since 1970; accurate to some hours
};

// Removes entries, with their logs, notes and damaged copies, the longest unused first, and all of
// them if `most_bytes` is 0. Processes that have an entry loaded keep it, and those that look for
// one meanwhile find it or compile it. An entry that cannot be removed is kept. A directory below
// `root` that is refused is skipped and named.
TrimOutcome trim(const Directory& root, const TrimRequest& request,
                 const std::function<void(const TrimmedEntry&)>& removed);

// Trims a cache that is larger than `most_bytes` to nine tenths of that, at most once an hour for
// all processes of all hosts. Processes that compile call it: they have their entry, so a failure
// is only reported.
void trim_now_and_then(const std::string& root, std::uint64_t most_bytes);

}  // namespace lazyck::rt
