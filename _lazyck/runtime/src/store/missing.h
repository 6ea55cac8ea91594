// Describes an entry that a cache does not have, and what is known of its compile: how long others
// wait for it, and how much memory is kept for it.
#pragma once

#include <string>

#include "platform/messages.h"
#include "store/workshop.h"

namespace lazyck::rt {

// Returns how many seconds to wait for another process that compiles the blob: four times the time
// of the slowest compile.
double patience(const Config& config, const Guess& guess);

// Returns the kilobytes to reserve for a compile: what it took before, or else what the library's
// largest compile took, plus a fifth for the driver and its other children.
long memory_for(const Config& config, const Guess& guess);

struct Missing {
    // Makes the directories for the entry in `cache`. Throws CompileError.
    Missing(Workshop& shop, const ManifestView& manifest, const BlobRow& blob, const EntryKey& key, Cache& cache);

    Workshop& shop;
    const ManifestView& manifest;
    const BlobRow& blob;
    const EntryKey& key;
    Cache& cache;
    const Strings symbols;   // the entry must define these
    const std::string path;  // of the entry
    const Subject subject;
    const Costs costs;
    const Guess guess;

    // Returns an event of the entry.
    Event event(const char* kind) const;
    // Reports that the call waited for `what` since `begin`, if that was long enough to notice.
    void tell_wait(const std::string& what, double begin) const;
};

}  // namespace lazyck::rt
