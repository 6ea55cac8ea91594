// Limits what a program may read, with all programs that it starts in turn (Landlock, Linux 5.13).
#pragma once

#include "base/text.h"
#include "platform/files.h"

namespace lazyck::rt {

class ReadRule {
 public:
    ReadRule() = default;
    // Allows to read and run the files at `paths`, and what is below directories among them. A path
    // that is not there is left out. Only files in the open directory `own` may be moved to other
    // directories, of which it has some. Writing and asking for a file's status stay allowed.
    ReadRule(const Strings& paths, int own);

    // Returns what limits a program, for Command, or -1 if this system has no Landlock.
    int fd() const { return m_fd.get(); }

 private:
    UniqueFd m_fd;
};

}  // namespace lazyck::rt
