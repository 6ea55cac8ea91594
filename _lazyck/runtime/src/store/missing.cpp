#include "store/missing.h"

#include "bundle/units.h"

namespace lazyck::rt {

namespace {

constexpr double k_least_wait = 0.05, k_longest_wait = 1e6;  // seconds

// Returns the cache, in which the directories for the entry are there.
Cache& prepared(Cache& cache, const EntryKey& key) {
    cache.make_directories_for(key);
    return cache;
}

}  // namespace

Missing::Missing(const Lookup& lookup, const ManifestView& its_manifest, const BlobRow& its_blob,
                 const EntryKey& its_key, Cache& its_cache)
    : manifest(its_manifest),
      blob(its_blob),
      key(its_key),
      cache(prepared(its_cache, its_key)),
      symbols(manifest.symbols_of(blob)),
      path(cache.entry_path(key)),
      subject(subject_of(manifest, blob, key.arch_label())),
      costs(cache.costs(key)),
      guess(lookup.guess(manifest, costs)) {}

Event Missing::event() const {
    Event event;
    event.library = subject.library;
    event.blob = subject.blob;
    event.arch = subject.arch;
    return event;
}

void tell_wait(Events& events, const Missing& missing, const char* what, double begin) {
    Event event = missing.event();
    event.kind = "wait";
    event.what = what;
    event.start = begin;
    event.seconds = now_seconds() - begin;
    // An implausible time, from a clock that jumped, is not reported, nor is a wait too short to
    // notice.
    if (event.seconds >= k_least_wait && event.seconds < k_longest_wait)
        events.tell(event, missing.cache.history_path());
}

}  // namespace lazyck::rt
