// What the parts of a lazy library share: its blobs, their states in this process, and the store.
#pragma once

#include <string>
#include <utility>

#include "library/blobs.h"
#include "library/states.h"
#include "store/store.h"

namespace lazyck::rt {

struct Core {
    Core(const Config& config, std::string path)
        : blobs(config, std::move(path)),
          store(config, {blobs.path(), bundle_roots(config.root, blobs.root(), blobs.path())}, true) {}

    const Blobs blobs;
    States states;
    Store store;
};

}  // namespace lazyck::rt
