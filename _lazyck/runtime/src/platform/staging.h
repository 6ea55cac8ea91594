// Makes directories that belong to one process each. They are named after the process, so that
// those of killed processes can be found.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/text.h"
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

// A directory with an unpredictable name for this process alone, which is removed when the process
// ends. It is for files that others need not see.
struct PrivatePlace {
    std::string parent, root;
    UniqueFd hold;      // shows others that the directory is in use
    pid_t process = 0;  // the process that made it
};

// Returns where such directories may be, in the order of preference: $TMPDIR, /tmp, /var/tmp,
// /dev/shm.
Strings private_parents();

// Opens `path` if it can hold a private place, because names in it are safe from others. The
// directory must belong to the user or root and must not be a link. Nobody else may write to it or,
// as in /tmp, nobody may move files of others. The result is empty if the directory is unsafe.
UniqueFd open_private_parent(const std::string& path);

// Makes a directory below `parent`, which is open as `directory`, and first removes those that
// killed processes left there. Returns nullopt if it cannot be made.
std::optional<PrivatePlace> make_private_place(int directory, const std::string& parent, const std::string& name);

// Removes the directory with all its contents at the end of the process, unless another process
// made it or a child made by fork still uses it.
void remove_private_place(PrivatePlace& place);

}  // namespace lazyck::rt
