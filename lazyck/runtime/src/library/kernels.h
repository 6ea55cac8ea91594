// Keeps the kernels of host units, and prepares what their handles need before a GPU runtime can
// use them.
//
// A host unit registers its kernels and variables with the name of its source in the place of
// device code. The calls that register, and those that take a handle, are wrapped at the link
// (`--wrap`, lazyck/postbuild/link/stubs.py). Registrations are kept here. At the first use of a
// handle, its device code is made ready and registered under that very handle, as the registration
// of a library that is loaded late would be. From then on, the GPU runtime does everything.
#pragma once

#include <cstdint>
#include <string>

namespace lazyck::rt {

// A handle that is used for the first time.
struct Handle {
    std::string source;  // name of the host unit
    const char* table;   // what a blob's host unit registers; empty: the manifest tells it
    std::string symbol;  // name in device code
    bool is_kernel = true;
};

// Returns the table of the blob `source`, or an empty string if its host unit is not loaded.
const char* table_of(const std::string& source);

// Makes ready what the handle among `arguments` needs. `wrapper` is the number of the wrapper that
// was called. Returns the function that it wraps. Throws CompileError.
void* wrapped(std::uint32_t wrapper, const std::uintptr_t* arguments);

// Returns whether `image` is the mark of a kernel that needs the other kernels of its source.
bool is_whole_mark(const void* image);

}  // namespace lazyck::rt
