// Counts what a library's blobs cost this process; see lazyck_stats.
#pragma once

#include <atomic>
#include <cstdint>

#include "store/remote.h"

namespace lazyck::rt {

struct Counters {
    std::atomic<std::uint64_t> hits{0}, misses{0}, compiles{0}, failures{0}, damaged{0}, compile_ns{0};
    RemoteCounters remote;
};

}  // namespace lazyck::rt
