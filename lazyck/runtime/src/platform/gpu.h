// Finds functions of the GPU libraries that the process has loaded, asks them whether the caller is
// recording a graph, and marks ranges for profilers. The runtime links none of these libraries.
#pragma once

#include <string>
#include <string_view>

#include "lazyck_abi.h"

namespace lazyck::rt {

// A row of lazyck/toolchains/gpu_runtimes.py, which says what the members mean. Names that do not
// exist are empty, and lists end with a null pointer.
struct GpuRuntime {
    LAZYCK_GPU_RUNTIME
};
inline constexpr GpuRuntime k_gpu_runtimes[] = {LAZYCK_GPU_RUNTIMES};

// Returns the GPU runtime that launches the kernels of a toolchain, or null if none does.
const GpuRuntime* gpu_runtime_of(std::string_view toolchain);

// Returns the address of `name` in the default scope, else in the first of `libraries` (ended by a
// null pointer) that has it, or null. Libraries that are loaded already come before those that
// would have to be loaded, which needs `may_load`. Nothing has an empty name.
void* find_symbol(const char* name, const char* const* libraries, bool may_load);

// Returns the name of the toolchain's GPU runtime if a stream that this thread is likely to launch
// on is being captured, else an empty string. Compiling or loading anything would spoil a capture.
// The streams looked at are the default ones and, if PyTorch is in the process, its current one. A
// call's own stream cannot be seen among its arguments.
std::string capturing_runtime(const std::string& toolchain);

// Marks a range on the calling thread for GPU profilers, such as NVTX and roctx, for the lifetime
// of the object. Ranges nest. Without such a library it does nothing. It calls the dynamic loader
// and the profiler's code, so construct and destroy it while no lock is held.
class ProfilerRange {
 public:
    explicit ProfilerRange(const std::string& name);
    ProfilerRange(const ProfilerRange&) = delete;
    ProfilerRange& operator=(const ProfilerRange&) = delete;
    ~ProfilerRange();
};

}  // namespace lazyck::rt
