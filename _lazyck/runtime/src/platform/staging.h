// Makes directories that belong to one process each. They are named after the process, so that
// those of killed processes can be found.
#pragma once

#include <string>

#include "platform/files.h"

namespace lazyck::rt {

// Returns "<stem>-<pid>@<host>-", which the name of such a directory begins with; six characters
// follow.
std::string owned_prefix(const std::string& stem);

// Holds `directory` as long as this process or one forked from it lives, so that no process takes
// it for left over. This works where process numbers mean nothing, too (containers that share a
// host's name). The result is empty if the file system has no locks.
UniqueFd hold_directory(const std::string& directory);

// Owns a directory for one compile in a cache, and removes it with all its contents. All work in it
// goes through its descriptor, so that nobody who may rename directories above the cache can put
// another one in its place.
class StagingDirectory {
 public:
    // Creates a directory named `prefix` (see owned_prefix) plus six characters, `depth`
    // directories below those that need not be trusted. Throws CompileError on failure.
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

// Removes the directories in the open directory `parent` whose name begins with `stem` and whose
// process was killed. Such a directory belongs to this user and this host and is minutes old; no
// process has its number, and nobody holds it.
void remove_left_over(int parent, const std::string& stem = "");

}  // namespace lazyck::rt
