// Says what a compile may take: how long others wait for it, and how much memory is kept for it.
#pragma once

#include "cache/costs.h"
#include "platform/config.h"

namespace lazyck::rt {

// Returns how many seconds to wait for another process that compiles the blob: four times the time
// of the slowest compile.
double patience(const Config& config, const Guess& guess);

// Returns the kilobytes to reserve for a compile: what it took before, or else what the library's
// largest compile took, plus a fifth for the driver and its other children.
long memory_for(const Config& config, const Guess& guess);

}  // namespace lazyck::rt
