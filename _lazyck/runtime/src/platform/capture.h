// Tells whether the caller is recording a graph: compiling or loading anything would spoil it.
#pragma once

#include <string>

namespace lazyck::rt {

// Returns "CUDA" or "HIP" if a stream that this thread is likely to launch on is being captured,
// else an empty string. The streams looked at are the default ones and, if PyTorch is in the
// process, its current one. A call's own stream cannot be seen among its arguments.
std::string capturing_runtime(const std::string& toolchain);

}  // namespace lazyck::rt
