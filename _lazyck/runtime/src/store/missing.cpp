#include "store/missing.h"

#include <algorithm>

namespace lazyck::rt {

namespace {

constexpr double k_least_patience = 1200;                    // seconds
constexpr long k_unknown_need_kib = 4L * 1024 * 1024;        // enough for large CUDA files
constexpr double k_least_wait = 0.05, k_longest_wait = 1e6;  // seconds

// Returns the cache, in which the directories for the entry are there.
Cache& prepared(Cache& cache, const EntryKey& key) {
    cache.make_directories_for(key);
    return cache;
}

}  // namespace

double patience(const Config& config, const Guess& guess) {
    if (config.lock_timeout >= 0) return config.lock_timeout;
    return std::max(k_least_patience, 4 * std::max(guess.blob.seconds, guess.largest.seconds));
}

long memory_for(const Config& config, const Guess& guess) {
    if (config.mem_per_job_kib >= 0) return config.mem_per_job_kib;
    const long known = guess.blob.peak_kib > 0 ? guess.blob.peak_kib : guess.largest.peak_kib;
    return known > 0 ? known + known / 5 : k_unknown_need_kib;
}

Missing::Missing(Workshop& its_shop, const ManifestView& its_manifest, const BlobRow& its_blob, const EntryKey& its_key,
                 Cache& its_cache)
    : shop(its_shop),
      manifest(its_manifest),
      blob(its_blob),
      key(its_key),
      cache(prepared(its_cache, its_key)),
      symbols(manifest.symbols_of(blob)),
      path(cache.entry_path(key)),
      subject(subject_of(manifest, blob, key.arch_label())),
      costs(cache.costs(key)),
      guess(shop.lookup.guess(manifest, costs)) {}

Event Missing::event(const char* kind) const {
    Event event;
    event.kind = kind;
    event.library = subject.library;
    event.blob = subject.blob;
    event.arch = subject.arch;
    return event;
}

void Missing::tell_wait(const std::string& what, double begin) const {
    Event event = this->event("wait");
    event.what = what;
    event.start = begin;
    event.seconds = now_seconds() - begin;
    // An implausible time, from a clock that jumped, is not reported, nor is a wait too short to
    // notice.
    if (event.seconds >= k_least_wait && event.seconds < k_longest_wait) shop.events.tell(event, cache.history_path());
}

}  // namespace lazyck::rt
