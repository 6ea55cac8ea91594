// The file of the library (or program) that this runtime is linked into.
#pragma once

#include <string>

namespace lazyck::rt {

// Its absolute path, or "" where the system does not tell. It decides which sources are compiled, so no name is
// believed that the program or its caller chose: what the kernel has mapped is looked up, and the file at that path
// must be the mapped one. Asks the dynamic loader: to be called while no lock is held.
std::string own_file();

}  // namespace lazyck::rt
