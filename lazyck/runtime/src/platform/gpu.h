// Finds functions of the GPU libraries that the process has loaded, asks them whether the caller is
// recording a graph, and marks ranges for profilers. The runtime links none of these libraries.
#pragma once

#include <initializer_list>
#include <string>

namespace lazyck::rt {

constexpr std::initializer_list<const char*> k_hip_libraries = {"libamdhip64.so", "libamdhip64.so.7",
                                                                "libamdhip64.so.6", "libamdhip64.so.5"};

// Returns the address of `name`, or null: from the default scope, else from the first of
// `libraries` that has it. Libraries that are loaded already come before those that would have to
// be loaded, which needs `may_load`.
void* find_symbol(const char* name, std::initializer_list<const char*> libraries, bool may_load);

// Returns "CUDA" or "HIP" if a stream that this thread is likely to launch on is being captured,
// else an empty string. Compiling or loading anything would spoil a capture. The streams looked at
// are the default ones and, if PyTorch is in the process, its current one. A call's own stream
// cannot be seen among its arguments.
std::string capturing_runtime(const std::string& toolchain);

// Marks a range on the calling thread for GPU profilers, NVTX (nvtxRangePushA) and roctx
// (roctxRangePushA), for the lifetime of the object. Ranges nest. Without such a library it does
// nothing. It calls the dynamic loader and the profiler's code, so construct and destroy it while
// no lock is held.
class Range {
 public:
    explicit Range(const std::string& name);
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range();
};

}  // namespace lazyck::rt
