// Describes an entry that a cache does not have, and what is known of its compile: how long others
// wait for it, and how much memory is kept for it.
#pragma once

#include <string>

#include "bundle/manifest_view.h"
#include "cache/cache.h"
#include "platform/config.h"
#include "platform/messages.h"
#include "record/events.h"
#include "store/permits.h"

namespace lazyck::rt {

class RemoteEntry;
class Store;
struct Entry;

// Returns how many seconds to wait for another process that compiles the blob: four times the time
// of the slowest compile.
double patience(const Config& config, const Guess& guess);

// Returns the kilobytes to reserve for a compile: what it took before, or else what the library's
// largest compile took, plus a fifth for the driver and its other children.
long memory_for(const Config& config, const Guess& guess);

// How a failure is to be treated; see failure.h.
struct Verdict {
    bool is_final = false;
    int place_error = 0;
    bool is_of_memory = false;
};

struct Missing {
    // Makes the directories for the entry in `cache`. Throws CompileError.
    Missing(Store& store, const ManifestRow& at, const Strings& archs, Cache& cache);

    Store& store;
    const ManifestRow at;
    const BlobRow blob;
    const EntryKey key;
    Cache& cache;
    const Strings symbols;   // the entry must define these
    const std::string path;  // of the entry
    const Subject subject;
    const Costs costs;
    const Guess guess;

    // Reports that the call waited for `what` since `begin`, if that was long enough to notice.
    void tell_wait(const std::string& what, double begin) const;
    // Returns the request for a permit of the host to compile.
    PermitRequest permit_request() const;
    // Throws CompileError that says why the entry cannot be compiled, and by which shell line to
    // repeat that, if there is one.
    [[noreturn]] void fail(const std::string& reason, const Verdict& verdict, const std::string& command = "") const;
};

// Waits for permits, and compiles the entry by the library's own compiler: stage, compile, link,
// check, seal, publish. The entry is then at its place in the cache with the log beside it, which
// is also left on failure. Sends the entry to the remote caches, by `remote` if that is not null.
// The caller holds the entry's lock. Throws CompileError.
Entry compile_entry(const Missing& missing, RemoteEntry* remote);

}  // namespace lazyck::rt
