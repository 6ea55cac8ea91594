// Directories that belong to one process each and are named after it, so that those of killed ones can be told.
#pragma once

#include <string>

#include "files.h"

namespace lazyck::rt {

// "<stem>-<pid>@<host>-": what such a directory's name begins with; six characters follow.
std::string owned_prefix(const std::string& stem);

// Holds `directory` as long as this process or one forked from it lives: then nobody takes it for left over, also where
// process numbers mean nothing (containers that share a host's name). Empty where the file system has no locks.
UniqueFd hold_directory(const std::string& directory);

// A directory for one compilation in a cache, removed with all it holds. All that happens in it goes by way of its
// descriptor: whoever may rename directories above the cache cannot put another one in its place meanwhile.
class StagingDirectory {
 public:
    // Named `prefix` (see owned_prefix) plus six characters, `depth` directories below those that need no trust. Throws
    // CompileError.
    StagingDirectory(const std::string& prefix, unsigned depth);
    StagingDirectory(const StagingDirectory&) = delete;
    StagingDirectory& operator=(const StagingDirectory&) = delete;
    ~StagingDirectory();

    int fd() const { return m_fd.get(); }
    const std::string& path() const { return m_path; }  // for messages

 private:
    std::string m_path;
    UniqueFd m_parent, m_fd;
};

// Removes those directories in the open directory `parent` whose name begins with `stem` and whose process was killed:
// they are ours and of this host, minutes old, no process has that number, and nobody holds them.
void remove_left_over(int parent, const std::string& stem = "");

}  // namespace lazyck::rt
