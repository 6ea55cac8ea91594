// Marks ranges for GPU profilers, NVTX (nvtxRangePushA) and roctx (roctxRangePushA), if their
// library is available.
#pragma once

#include <string>

namespace lazyck::rt {

// Marks a range on the calling thread for the lifetime of the object. Ranges nest. It does nothing
// if no such library is found. It calls the dynamic loader and the profiler's code, so construct
// and destroy it while no lock is held.
class Range {
 public:
    explicit Range(const std::string& name);
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range();
};

}  // namespace lazyck::rt
