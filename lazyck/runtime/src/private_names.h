// Gives what the library hides ahead of time its private names in a blob's object.
#pragma once

#include <string>

#include "text.h"

namespace lazyck::rt {

// Renames, in the relocatable object that is open as `fd` for reading and writing, each symbol `NAME`, defined or not,
// for which `private_ones` holds `NAME` with LAZYCK_PRIVATE_MARK and a tag behind it. What nothing outside its library
// could see must not be bound by name to something of another library; so the linker and the loader get to see a name
// that no other library has. Returns what is wrong with the object, or "". Throws CompileError when it cannot be read
// or written.
std::string give_private_names(int fd, const Strings& private_ones);

}  // namespace lazyck::rt
