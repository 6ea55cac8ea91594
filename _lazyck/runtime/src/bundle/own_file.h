// Finds the file of the library (or program) that this runtime is linked into.
#pragma once

#include <string>

namespace lazyck::rt {

// Returns the absolute path of this file, or an empty string if the system does not tell. The path
// decides which sources are compiled, so no name is trusted that the program or its caller chose:
// the kernel is asked what is mapped, and the file at that path must be the mapped one. This
// function calls the dynamic loader, so call it while no lock is held.
std::string own_file();

}  // namespace lazyck::rt
