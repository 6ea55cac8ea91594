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
#include "history/events.h"
#include "lazyck_abi.h"
#include "platform/config.h"
#include "platform/messages.h"
#include "platform/process.h"
#include "store/compilers.h"
#include "store/jit_policy.h"
#include "store/permits.h"
#include "store/preambles.h"
#include "store/sources.h"

namespace lazyck::rt {

class RemoteEntry;
struct Missing;

// Counts what a library's blobs cost this process; see lazyck_stats.
struct Counters {
    std::atomic<std::uint64_t> hits{0}, misses{0}, compiles{0}, failures{0}, damaged{0}, compile_ns{0};
    std::atomic<std::uint64_t> remote_hits{0}, remote_refused{0}, remote_skipped{0};
};

class Store {
 public:
    // With `may_stand_in`, a store that cannot write the cache compiles into another one, for this
    // process only.
    Store(const Config& its_config, LibraryPaths its_paths, bool may_stand_in = false)
        : config(its_config),
          paths(std::move(its_paths)),
          events(config.trace),
          jit(config),
          permits(config.jobs),
          m_may_stand_in(may_stand_in) {}

    // Returns the key by which the entry of a blob for `archs` is looked up, compiled by the
    // build's compiler, or by the one that has the name `compiler`.
    EntryKey key_of(const ManifestRow& at, const Strings& archs, const std::string& compiler = "") const;
    // Returns the verified entry: what `find` finds, or else what `fill` compiles. Throws
    // CompileError, also if compiling is forbidden.
    Entry obtain(const ManifestRow& at, const Strings& archs);
    // Returns the verified entry if a cache has it, made by the build's compiler or by the one of
    // the name `compiler`. Throws CompileError.
    std::optional<Entry> find(const ManifestRow& at, const Strings& archs, const std::string& compiler = "");
    // Compiles the entry, unless a second look-up under the blob's lock finds it. If this machine's
    // compiler is not the build's, that look-up and the entry are under its own name. While it
    // holds a lock or a permit, it calls neither the dynamic loader nor the C library's name
    // services or locale, nor code of the program.
    Entry fill(const ManifestRow& at, const Strings& archs);
    // Moves an entry aside that the loader refuses, so that it is made again. Leaves those of other
    // caches, and what another process has made meanwhile.
    void set_aside(const ManifestRow& at, const Entry& entry);
    // Returns the entry from a remote cache if one has it, and compiles nothing.
    std::optional<Entry> fetch(const ManifestRow& at, const Strings& archs);
    // Returns whether to compile the blob by its parts (see ByKernel), if it has parts and none of
    // it is cached.
    bool goes_by_kernel(const ManifestRow& at);
    // Records that a blob has no host unit. Later decisions on this blob and on others of its
    // library take it into account.
    void refuse_by_kernel(const ManifestRow& at);

    // Returns whether a cache has the entry, by whichever compiler this process knows, and sets
    // `path` to where it is, or would be in the user's own cache; and `key` to its key.
    bool is_cached(const ManifestRow& at, const Strings& archs, std::string& path, EntryKey* key = nullptr);
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

    // Writes pending events at the end of the process, and removes the files that were for this
    // process alone.
    void close();

    // These are handlers of fork. The child gets new copies of what other threads were changing,
    // with all permits free.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

    const Config config;
    const LibraryPaths paths;
    Counters counters;
    Events events;
    JitPolicy jit;
    std::mutex mutex;  // held for moments only; guards which caches there are, and what `preambles` remembers
    std::unique_ptr<Sources> sources = std::make_unique<Sources>(paths);
    std::unique_ptr<Compilers> compilers = std::make_unique<Compilers>(*sources, config.jobs);
    ProcessPermits permits;
    Preambles preambles{*this};
    std::unique_ptr<NamedCopies> named_copies = std::make_unique<NamedCopies>(LAZYCK_DEFAULT_CACHE_NAME);

 private:
    // Return nothing if compiling is not permitted and no remote cache has the entry. They set
    // `service_problem` if a compile service was to compile the entry and did not. The first tries
    // the build's compiler, then that of this machine if it is another one.
    std::optional<Entry> fill_by_any(const ManifestRow& at, const Strings& archs, bool may_compile,
                                     std::string& service_problem);
    // With `asks`, this machine's compiler is asked first which one it is. No lock is held then.
    // The build's compiler compiles nothing unless it is known to be here.
    std::optional<Entry> fill_where_writable(const ManifestRow& at, const Strings& archs, const std::string& compiler,
                                             bool may_compile, bool asks, std::string& service_problem);
    // Returns the name of this machine's compiler if it is not the build's; else an empty string.
    // If it is not known, it is asked only with `asks`, or if an entry may be there that it made.
    std::string other_compiler(const ManifestRow& at, const EntryKey& of_build, bool asks);
    // Makes the entry unless another process does first.
    std::optional<Entry> fill_under_lock(const Missing& missing, bool may_compile, std::string& service_problem);
    [[noreturn]] void fail_frozen(const ManifestRow& at, const Strings& archs, Cache& cache) const;

    std::shared_ptr<Caches> m_caches;
    std::string m_given;  // by set_cache_dir
    const bool m_may_stand_in;
};

// Returns how many seconds to wait for another process that compiles the blob: four times the time
// of the slowest compile.
double patience(const Config& config, const Guess& guess);

// Returns the kilobytes to reserve for a compile: what it took before, or else what the library's
// largest compile took, plus a fifth for the driver and its other children.
long memory_for(const Config& config, const Guess& guess);

// What to do if there is no compiler that works.
constexpr char k_install_advice[] =
    "; install that compiler, or fill the cache ahead of time with `lazyck prebuild build`";

// How a failure is to be treated; see failure.h.
struct Verdict {
    bool is_final = false;
    int storage_error = 0;
    bool is_of_memory = false;
};

// Judges a compile step that failed in the directory `staging`, by what the compiler wrote. If that
// could not be logged, `log_error` is the errno value.
Verdict judge(const Outcome& outcome, const std::string& output, int log_error, const std::string& staging);

// Describes an entry that a cache does not have, and what is known of its compile: how long others
// wait for it, and how much memory is kept for it.
struct Missing {
    // Makes the directories for the entry in `cache`, by the compiler of the name `compiler` or, if
    // that is empty, by the build's. Throws CompileError.
    Missing(Store& store, const ManifestRow& at, const Strings& archs, Cache& cache, const std::string& compiler = "");

    Store& store;
    const ManifestRow at;
    const BlobRow blob;
    const EntryKey key;
    Cache& cache;
    const Strings symbols;   // the entry must define these
    const std::string path;  // of the entry
    const Subject subject;
    const Guess guess;

    Event event(const char* kind) const;
    // Reports that the call waited for `what` since `begin`, if that was long enough to notice.
    void tell_wait(const std::string& what, double begin) const;
    PermitRequest permit_request() const;
    // Throws CompileError that says why the entry cannot be compiled, and by which shell line to
    // repeat that, if there is one.
    [[noreturn]] void fail(const std::string& reason, const Verdict& verdict, const std::string& command = "") const;
};

// Waits for permits, and compiles the entry by the library's own compiler: stage, compile, link,
// check, seal, publish. The entry is then in the cache with the log beside it, which is also left
// on failure. Sends the entry to the remote caches, by `remote` if that is not null. The caller
// holds the entry's lock. Throws CompileError.
Entry compile_entry(const Missing& missing, RemoteEntry* remote);

}  // namespace lazyck::rt
