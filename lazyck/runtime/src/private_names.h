// Gives those functions of a blob's object their private names that the library hides ahead of time.
#pragma once

#include <string>

#include "text.h"

namespace lazyck::rt {

// Renames, in the relocatable object that is open as `fd` for reading and writing, each symbol `NAME` for which
// `symbols` holds `NAME` with LAZYCK_PRIVATE_MARK and a tag behind it. A function that nothing outside its library
// could see must not be bound by name to one of another library; so the linker and the loader get to see a name that
// no other library has. Returns what is wrong with the object, or "". Throws CompileError when it cannot be read or
// written.
std::string give_private_names(int fd, const Strings& symbols);

}  // namespace lazyck::rt
