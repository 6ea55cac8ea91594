// Describes an entry that a cache does not have, and what is known of its compile.
#pragma once

#include <string>

#include "bundle/manifest_view.h"
#include "cache/cache.h"
#include "cache/costs.h"
#include "platform/messages.h"
#include "record/events.h"
#include "store/lookup.h"

namespace lazyck::rt {

struct Missing {
    // Makes the directories for the entry in `cache`. Throws CompileError.
    Missing(const Lookup& lookup, const ManifestView& manifest, const BlobRow& blob, const EntryKey& key, Cache& cache);

    const ManifestView& manifest;
    const BlobRow& blob;
    const EntryKey& key;
    Cache& cache;
    const Strings symbols;   // the entry must define these
    const std::string path;  // of the entry
    const Subject subject;
    const Costs costs;
    const Guess guess;

    // Returns an event of the entry, which has no kind yet.
    Event event() const;
};

// Reports that the call waited for `what` since `begin`, if that was long enough to notice.
void tell_wait(Events& events, const Missing& missing, const char* what, double begin);

}  // namespace lazyck::rt
