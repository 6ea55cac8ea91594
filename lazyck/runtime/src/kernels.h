// Kernels of host units: which there are, and what their handles need before a GPU runtime can use them.
//
// A host unit registers its kernels and variables with the name of its source in the place of device code. The calls
// that register, and those that take a handle, are wrapped at the link (`--wrap`, lazyck/postbuild/handles.py):
// registrations are kept here; the first use of a handle has its device code made ready and registered under that very
// handle, as the registration of a library that is loaded late would be. From then on the GPU runtime does all.
#pragma once

#include <cstdint>
#include <string>

namespace lazyck::rt {

// A handle that is used for the first time.
struct Handle {
    std::string source;  // the host unit's name
    const char* table;   // of a blob's host unit: what it registers; "": the manifest says
    std::string symbol;  // in device code
    bool is_kernel = true;
};

// The table of the blob `source`, whose host unit is loaded; "" if it is not.
const char* table_of(const std::string& source);

// Called for the wrapper of number `wrapper` with its arguments: has what its handle needs made ready; returns the
// function that it wraps. Throws CompileError.
void* wrapped(std::uint32_t wrapper, const std::uintptr_t* arguments);

// What stands at `image` for a kernel that cannot be had without the others of its source.
bool is_whole_mark(const void* image);

}  // namespace lazyck::rt
