// Loads a shared library by way of a copy in memory: for file systems that no code may be mapped from (noexec).
#pragma once

#include "files.h"

namespace lazyck::rt {

// Whether the file system of `fd` forbids that code is mapped from it.
bool is_on_noexec(int fd);

// A copy of all that `fd` has; empty, with errno, where the system cannot.
UniqueFd copy_to_memory(int fd);

}  // namespace lazyck::rt
