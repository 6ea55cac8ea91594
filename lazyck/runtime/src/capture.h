// Whether the caller is recording a graph: then nothing can be compiled or loaded without spoiling it.
#pragma once

#include <string>

namespace lazyck::rt {

// "CUDA" or "HIP" if a stream that this thread is likely to launch on is being captured, else "". Those are the default
// streams and, where PyTorch is in the process, its current one; a call's own stream is hidden among its arguments.
std::string capturing_runtime(const std::string& toolchain);

}  // namespace lazyck::rt
