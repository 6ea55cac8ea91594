// Makes directories that belong to one process each. They are named after the process, so that
// those of killed processes can be found.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "platform/files.h"

namespace lazyck::rt {

// Returns "<stem>-<pid>@<host>-", which the name of such a directory begins with; six characters
// follow.
std::string owned_prefix(const std::string& stem);

// Owns a directory for one compile in a cache, and removes it with all its contents. All work in it
// goes through its descriptor, so that no user who may rename directories above the cache can put
// another one in its place.
class StagingDirectory {
 public:
    // Creates a directory named `prefix` (see owned_prefix) plus six characters, in a directory of
    // the cache's root. Throws CompileError on failure.
    explicit StagingDirectory(const std::string& prefix);
    ~StagingDirectory();

    int fd() const { return m_fd.get(); }
    const std::string& path() const { return m_path; }  // for messages

 private:
    std::string m_path;
    UniqueFd m_parent, m_fd;
};

// Removes the directories in the open directory `parent` whose name begins with `stem` and whose
// process was killed. Such a directory belongs to this user and this host and is minutes old; no
// process has its number or holds its lock.
void remove_left_over(int parent, const std::string& stem = "");

// Directories with unpredictable names for this process alone, at most one below each parent. They
// are for files that others need not see.
class PrivateDirectories {
 public:
    explicit PrivateDirectories(std::string name) : m_name(std::move(name)) {}

    // Returns where such directories may be, in the order of preference: $TMPDIR, /tmp, /var/tmp,
    // /dev/shm.
    static Strings parents();
    // Returns the directory below `parent`, made at the first call, or an empty string if there can
    // be none. The names in the parent must be safe from others: it belongs to the user or root and
    // is no link, and no other user may write to it or, as in /tmp, move files of others. `suits`
    // gets the open parent. Those that killed processes left there are removed first.
    std::string below(const std::string& parent, const std::function<bool(int)>& suits = [](int) { return true; });
    // Shows others that the directories are in use, for as long as this process or one forked from
    // it lives.
    void hold();
    // Removes the directories at the end of the process, unless another process made them or a
    // child made by fork still uses them.
    void close();

 private:
    struct Owned {
        std::string parent, root;
        UniqueFd hold;      // empty: not yet
        pid_t process = 0;  // the process that made it
    };

    const std::string m_name;
    std::vector<Owned> m_owned;
};

}  // namespace lazyck::rt
