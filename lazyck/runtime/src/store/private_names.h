// Renames symbols in a blob's object that the library hides when it is compiled ahead of time.
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"

namespace lazyck::rt {

// Renames symbols in the relocatable object that is open as `fd` for reading and writing: all whose
// private name in the library of that `tag` is in `private_names`, defined or not. A name that
// nothing outside its library could see must not be bound to a symbol of another library, so the
// linker and the loader get a name that no other library has.
//
// If the lead of private names is one of them, the library hides what it has of headers, too. So
// does a blob with the inline functions and vtables that only blobs have: all but its `own`
// functions and those of which a name made with LAZYCK_PLAIN_TAG is there. Returns what is wrong
// with the object, or an empty string. Throws CompileError if it cannot be read or written.
std::string give_private_names(int fd, const Strings& private_names, std::string_view tag, const Strings& own);

}  // namespace lazyck::rt
