// Gets a blob's entry: looks it up, takes the lock, looks it up again, and compiles it. Every lazy
// library and lazyck-rt use this.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "bundle/manifest_view.h"
#include "cache/caches.h"
#include "cache/entry.h"
#include "cache/named_copies.h"
#include "lazyck_abi.h"
#include "platform/config.h"
#include "record/events.h"
#include "store/jit_policy.h"
#include "store/permits.h"
#include "store/preambles.h"
#include "store/sources.h"

namespace lazyck::rt {

struct Missing;

// Counts what a library's blobs cost this process; see lazyck_stats.
struct Counters {
    std::atomic<std::uint64_t> hits{0}, misses{0}, compiles{0}, failures{0}, damaged{0}, compile_ns{0};
    std::atomic<std::uint64_t> remote_hits{0}, remote_refused{0}, remote_skipped{0};
};

class Store {
 public:
    // With `may_stand_in`, a store that cannot write the cache compiles into another place, for
    // this process only.
    Store(const Config& its_config, Places its_places, bool may_stand_in = false)
        : config(its_config),
          places(std::move(its_places)),
          events(config.trace),
          jit(config),
          permits(config.jobs),
          m_may_stand_in(may_stand_in) {}

    // Returns the key by which the entry of a blob for `archs` is looked up.
    EntryKey key_of(const ManifestRow& at, const Strings& archs) const;
    // Returns the verified entry: what `find` finds, or else what `make` compiles. Throws
    // CompileError, also if compiling is forbidden.
    Entry obtain(const ManifestRow& at, const Strings& archs);
    // Returns the verified entry if a cache has it. Throws CompileError.
    std::optional<Entry> find(const ManifestRow& at, const Strings& archs);
    // Compiles the entry, unless a second look-up under the blob's lock finds it. While it holds a
    // lock or a permit, it calls neither the dynamic loader nor the C library's name services or
    // locale, nor code of the program.
    Entry make(const ManifestRow& at, const Strings& archs);
    // Returns the entry from a remote cache if one has it, and compiles nothing.
    std::optional<Entry> fetch(const ManifestRow& at, const Strings& archs);
    // Returns whether to compile the blob by its parts (see ByKernel), if it has parts and none of
    // it is cached.
    bool goes_by_kernel(const ManifestRow& at);
    // Records that a blob has no host unit. Later decisions on this blob and on others of its
    // library take it into account.
    void refuse_by_kernel(const ManifestRow& at);

    // Returns whether a cache has the entry, and sets `path` to where it is, or would be in the
    // user's own cache.
    bool is_cached(const ManifestRow& at, const Strings& archs, std::string& path);
    // Returns an entry that was made from a text, from any of the caches; see texts.h.
    UniqueFd find_text(const ManifestView& manifest, const EntryKey& text, const Strings& symbols);

    // Returns the expected cost of the blob's compile, by earlier ones.
    Guess expected_cost(const ManifestRow& at, const Strings& archs);
    // Returns the expected cost of a compile, from a cache's records and the figures that came with
    // the library.
    Guess guess(const ManifestView& manifest, const Costs& costs) const;
    // Returns the file in which events of this library are recorded, or an empty string if there is
    // no cache.
    std::string history(const ManifestView& manifest);

    // Returns the caches, which are made at the first use.
    std::shared_ptr<Caches> caches(const ManifestView& manifest);
    // Sets the cache directory. Throws CompileError if `path` cannot be a cache.
    void set_cache_dir(const std::string& path);
    void forget_bad_places();

    // Writes pending events at the end of the process, and removes the files that were for this
    // process alone.
    void close();

    // These are handlers of fork. The child gets new copies of what other threads were changing,
    // with all permits free.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

    const Config config;
    const Places places;
    Counters counters;
    Events events;
    JitPolicy jit;
    std::mutex mutex;  // held for moments only; guards which caches there are, and what `preambles` remembers
    Sources sources{places};
    JobPermits permits;
    Preambles preambles{*this};
    std::unique_ptr<NamedCopies> named_copies = std::make_unique<NamedCopies>(LAZYCK_DEFAULT_CACHE_NAME);

 private:
    // Returns nothing if compiling is not permitted and no remote cache has the entry. Sets
    // `service_problem` if a compile service was to compile the entry and did not.
    std::optional<Entry> make_somewhere(const ManifestRow& at, const Strings& archs, bool may_compile,
                                        std::string& service_problem);
    // Makes the entry unless another process does first.
    std::optional<Entry> make_in_turn(const Missing& missing, bool may_compile, std::string& service_problem);
    void bound(Cache& cache);
    [[noreturn]] void fail_frozen(const ManifestRow& at, const Strings& archs, Cache& cache) const;

    std::shared_ptr<Caches> m_caches;
    std::string m_given;  // by set_cache_dir
    const bool m_may_stand_in;
};

}  // namespace lazyck::rt
