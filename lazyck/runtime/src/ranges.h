// Ranges for GPU profilers: NVTX (nvtxRangePushA) and roctx (roctxRangePushA), where the process has such a library.
#pragma once

#include <string>

namespace lazyck::rt {

// A range on the calling thread, from the object's begin to its end; ranges nest. Nothing where no such library is
// found. It enters the dynamic loader and the profiler's code: to be made and ended while no lock is held.
class Range {
 public:
    explicit Range(const std::string& name);
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range();
};

}  // namespace lazyck::rt
