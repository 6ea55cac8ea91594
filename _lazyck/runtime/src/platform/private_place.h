// Makes a directory with an unpredictable name for this process alone, which is removed when the
// process ends. It is for files that others need not see.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/text.h"
#include "platform/files.h"

namespace lazyck::rt {

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
