// A directory of this process alone, of an unpredictable name, that goes with it: for what others need not see.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "files.h"
#include "text.h"

namespace lazyck::rt {

struct PrivatePlace {
    std::string parent, root;
    UniqueFd hold;      // tells others that it is in use
    pid_t process = 0;  // that made it
};

// Where such directories may be, in the order of preference: $TMPDIR, /tmp, /var/tmp, /dev/shm.
Strings private_parents();

// Opens `path` if names in it are safe from others, so that it can hold a private place: it is the user's or root's, no
// link, and either nobody else can write to it or, as in /tmp, nobody can move what belongs to others. Else empty.
UniqueFd open_private_parent(const std::string& path);

// Makes one below `parent`, which is open as `directory`; clears away those that killed processes left there. nullopt
// where it cannot be made.
std::optional<PrivatePlace> make_private_place(int directory, const std::string& parent, const std::string& name);

// At the process's end: removes it with all it holds, unless another process made it or a child made by fork still
// uses it.
void remove_private_place(PrivatePlace& place);

}  // namespace lazyck::rt
