// What all that finds and makes the entries of one library shares.
#pragma once

#include <mutex>
#include <utility>

#include "platform/config.h"
#include "record/events.h"
#include "store/jit_policy.h"
#include "store/lookup.h"
#include "store/permits.h"
#include "store/sources.h"

namespace lazyck::rt {

struct Workshop {
    Workshop(const Config& its_config, Places its_places)
        : config(its_config), places(std::move(its_places)), events(config.trace), jit(config), permits(config.jobs) {}

    const Config config;
    const Places places;
    Counters counters;
    Events events;
    JitPolicy jit;
    std::mutex mutex;  // held for moments only; guards what `lookup` and Preambles remember
    Lookup lookup{config, places, counters, mutex};
    Sources sources{places};
    JobPermits permits;
};

}  // namespace lazyck::rt
