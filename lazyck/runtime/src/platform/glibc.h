// Knows what differs between versions of glibc.
#pragma once

namespace lazyck::rt {

// Returns whether this process has glibc 2.`minor` or a later one.
bool has_glibc(long minor);

// Returns whether dlopen and dlsym may fail: before glibc 2.34, a failure in a library that dlmopen
// loaded into a namespace of its own ends the process.
bool may_ask_loader();

}  // namespace lazyck::rt
