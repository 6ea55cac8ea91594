// Keeps a cache below a size: removes what has not been used for longest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "directory.h"

namespace lazyck::rt {

// Calls `use` with the directory and the name of each entry, and `refused` with the path of each directory below `root`
// that the runtime would load nothing from, and the reason. Throws CompileError when `root` itself cannot be read or is
// refused.
void for_each_entry(const std::string& root, const std::function<void(const Directory&, const std::string&)>& use,
                    const Refused& refused);

struct TrimRequest {
    std::uint64_t most_bytes = UINT64_MAX;  // that may stay
    double oldest_seconds = -1;             // since its last use that an entry may stay; negative: any
    bool is_dry = false;                    // only tell what would go
    // Paths of entries, or of the directories that hold them: nothing else may go. Not set: anything may.
    std::optional<std::set<std::string>> only{};
};

struct TrimOutcome {
    std::uint64_t kept = 0, kept_bytes = 0, removed = 0, removed_bytes = 0;  // entries; bytes of logs and preambles too
    std::uint64_t removed_logs = 0, removed_preambles = 0, removed_texts = 0;  // logs of failures
};

struct TrimmedEntry {
    std::string path;
    std::uint64_t bytes = 0;  // with all that lies beside it
    double last_use = 0;      // seconds since 1970; exact to some hours
};

// Removes entries, with their logs, notes and damaged copies, the longest unused first; all of them where no byte may
// stay. Jobs that have one loaded keep it, and those that look for one meanwhile find it or compile it. An entry that
// cannot be removed is kept. A directory below `root` that is refused is passed over and named. Throws CompileError
// when `root` itself cannot be read or is refused.
TrimOutcome trim(const std::string& root, const TrimRequest& request,
                 const std::function<void(const TrimmedEntry&)>& removed);

// For processes that compile: trims to nine tenths of `most_bytes` if it is more than that, at most once an hour for
// all processes of all hosts.
void trim_now_and_then(const std::string& root, std::uint64_t most_bytes);

}  // namespace lazyck::rt
