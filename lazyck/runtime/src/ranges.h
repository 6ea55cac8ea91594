// Ranges for GPU profilers: NVTX (nvtxRangePushA) and roctx (roctxRangePushA), where the process has such a library.
#pragma once

#include <string>

namespace lazyck::rt {

// Begins a range on the calling thread; ranges nest. Nothing where no such library is found.
void begin_range(const std::string& name);
void end_range();

}  // namespace lazyck::rt
