// The record of launches that tests read: each accepted launch appends one line to the file
// FAKE_ROCM_LAUNCH_LOG.
#pragma once

#include <hip/hip_runtime_api.h>

#include <string>

namespace fake_rocm {

bool is_logging();

// Appends a line such as: pid=1 role=cpu arch=gfx942 grid=1,1,1 block=64,1,1 shared=0
// kernel=_Z3addPf
void log_launch(const char* role, const std::string& kernel, dim3 grid, dim3 block, size_t shared_bytes);

// Returns the mangled name of the function at this address: from .dynsym, else from .symtab of its
// file (hidden and local functions), else `fallback` without blanks.
std::string name_of_function(const void* address, const char* fallback);

}  // namespace fake_rocm
