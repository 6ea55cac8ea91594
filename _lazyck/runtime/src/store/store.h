// Gets a blob's entry: looks it up, takes the lock, looks it up again, and compiles it. Every lazy
// library and lazyck-rt use this.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bundle/contents.h"
#include "bundle/manifest_view.h"
#include "cache/archive.h"
#include "cache/cache.h"
#include "cache/caches.h"
#include "cache/entry.h"
#include "cache/named_copies.h"
#include "platform/config.h"
#include "record/events.h"
#include "store/jit_policy.h"
#include "store/remote.h"

namespace lazyck::rt {

struct Counters {
    std::atomic<std::uint64_t> hits{0}, misses{0}, compiles{0}, failures{0}, damaged{0}, compile_ns{0};
    RemoteCounters remote;
};

// Bounds the number of compilers that this process runs.
class JobSlots {
 public:
    explicit JobSlots(unsigned count) : m_free(count) {}
    void acquire(const std::string& blob);
    // Acquires a slot for work that no call waits for. It comes after all waiting calls, unless
    // they are so many that the work pays off for them.
    void acquire_for_later();
    bool try_acquire();
    void release();

    // Lets `blob` get no slot before `first` has had one or needs none.
    void put_behind(const std::string& blob, const std::string& first);
    void needs_none(const std::string& first);

 private:
    void let_pass(const std::string& first);

    std::mutex m_mutex;
    std::condition_variable m_changed;
    unsigned m_free;
    unsigned m_waiting = 0;                       // in acquire()
    std::map<std::string, std::string> m_behind;  // blob -> first
};

// Tells where a lazy library and its bundle are.
struct Places {
    std::string library;
    Strings roots;  // where the bundle may be
};

class Store {
 public:
    // With `may_stand_in`, a store that cannot write the cache compiles into another place, for
    // this process only.
    Store(const Config& config, Places places, bool may_stand_in = false);

    // Returns the verified entry of blob `index` for `archs`: what `find` finds, or else what
    // `make` compiles. Throws CompileError, also if compiling is forbidden.
    Entry obtain(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Returns the verified entry if a cache has it.
    std::optional<Entry> find(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Compiles the entry, unless a second look-up under the blob's lock finds it. While it holds a
    // lock or a slot, it calls neither the dynamic loader nor the C library's name services or
    // locale, nor code of the program.
    Entry make(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Returns the entry from a remote cache if one has it, and compiles nothing.
    std::optional<Entry> fetch(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Returns whether to compile blob `index` by its parts (see by_kernel.h), if it has parts and
    // none of it is cached.
    bool goes_by_kernel(const ManifestView& manifest, std::uint32_t index);
    // Records that a blob has no host unit. Later decisions on this blob and on others of its
    // library take it into account.
    void refuse_by_kernel(const ManifestView& manifest, std::uint32_t index);

    // Returns whether a cache has the entry, and sets `path` to where it is, or would be in the
    // user's own cache.
    bool is_cached(const ManifestView& manifest, std::uint32_t index, const Strings& archs, std::string& path);

    // Returns the key by which the entry is looked up.
    EntryKey key_of(const ManifestView& manifest, const BlobRow& blob, const Strings& archs) const;

    // Returns the key that is equal for blobs that can share a precompiled preamble (see
    // preamble.h): a digest of all that decides the preamble's contents. The key is empty if the
    // blob has no preamble.
    std::string preamble_key(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Makes the preamble of blob `index` in the cache, where compiles find it, unless it is there.
    // Returns an empty string, or the reason why there is none. Throws CompileError.
    std::string make_preamble(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Returns whether a process that has just compiled the blob may soon compile others that share
    // its preamble. It returns true at most once for all blobs that are compiled alike.
    bool should_make_preamble(const ManifestView& manifest, std::uint32_t index, const Strings& archs);

    // Sets the cache directory. Throws CompileError if `path` cannot be a cache.
    void set_cache_dir(const std::string& path);

    // Lets the next compile try again to write where writing failed before.
    void forget_bad_places();

    // Announces that another thread makes `blob` ready, once `first` has got a slot or
    // `needs_no_slot` was called. Until `withdraw`, compiles leave slots free for it.
    void announce(const std::string& blob, const std::string& first);
    void withdraw() { --m_announced; }
    void needs_no_slot(const std::string& first) { m_jobs->needs_none(first); }

    JitPolicy& jit() { return m_jit; }
    // Returns the expected cost of the blob's compile, by earlier ones.
    Guess expected_cost(const ManifestView& manifest, std::uint32_t index, const Strings& archs);

    // Returns the file in which events of this library are recorded, or an empty string if there is
    // no cache.
    std::string history(const ManifestView& manifest);

    // Writes pending events at the end of the process, and removes the files that were for this
    // process alone.
    void close();

    // These are handlers of fork. The child gets new copies of what other threads were changing,
    // with all job slots free.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

    const Config& config() const { return m_config; }
    Counters& counters() { return m_counters; }
    Events& events() { return m_events; }
    NamedCopies& named_copies() { return *m_copies; }

 private:
    std::shared_ptr<Caches> caches(const ManifestView& manifest);
    // Returns the expected cost of a compile, from this cache's records and the figures that came
    // with the library.
    Guess guess(const ManifestView& manifest, const Costs& costs) const;
    std::string name_of(const ManifestView& manifest) const;
    struct Source {
        std::string root, path;
        bool is_in_bundle;
    };
    // Returns where the blob's source is. The sources of an archived bundle are unpacked into
    // `cache`.
    Source source_of(const ManifestView& manifest, const BlobRow& blob, Cache& cache);
    // Throws CompileError unless the source is fit to be compiled.
    void check_source_of(const Source& source, const ManifestView& manifest, const BlobRow& blob);
    // Returns nothing if compiling is not permitted and no remote cache has the entry.
    std::optional<Entry> compile_somewhere(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key,
                                           bool may_compile, Caches& caches);
    // Sets `service_problem` if a compile service was to compile the entry and did not.
    std::optional<Entry> compile(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key,
                                 bool may_compile, Cache& cache, std::string& service_problem);
    // Returns what a helper for the remote caches or the compile service needs to know in any case.
    RemoteRequest remote_request(const Subject& subject, const Guess& guess) const;
    // Returns the entry, open, as a compile service made it, or an empty descriptor with the reason
    // in `problem`. Throws CompileError if its compiler refused the code.
    UniqueFd compile_there(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key, const Guess& guess,
                           Cache& cache, std::string& origin, std::string& problem);
    // Returns null if there are no remote caches.
    std::unique_ptr<RemoteEntry> ask_remotes(const Subject& subject, const Guess& guess, const EntryKey& key,
                                             bool may_compile, Cache& cache);
    static std::string preamble_key(const ManifestView& manifest, const BlobRow& blob, const Strings& archs,
                                    const Source& source);
    // Returns the directory of the preamble with this key, or an empty string if there is none.
    // Throws CompileError if others could have written it.
    static std::string find_preamble(const std::string& key, const Cache& cache);
    // Returns an entry that was made from a text, from any of the caches; see texts.h.
    UniqueFd find_text_somewhere(const ManifestView& manifest, const EntryKey& text, const Strings& symbols);
    void tell_wait(Event event, const char* what, double begin, const Cache& cache);
    void bound(Cache& cache);
    [[noreturn]] void fail_frozen(const BlobRow& blob, const EntryKey& key, Cache& cache) const;

    const Config m_config;
    const Places m_places;
    Counters m_counters;
    Events m_events;
    JitPolicy m_jit;
    std::atomic<unsigned> m_announced{0};
    std::unique_ptr<Contents> m_contents = std::make_unique<Contents>();
    std::unique_ptr<Archives> m_archives = std::make_unique<Archives>();
    std::unique_ptr<JobSlots> m_jobs;
    std::mutex m_mutex;                // held for moments only
    std::shared_ptr<Caches> m_caches;  // made at the first use
    std::unique_ptr<NamedCopies> m_copies;
    std::string m_given;                                           // by set_cache_dir
    std::set<std::pair<const void*, std::uint32_t>> m_considered;  // recipes, for preambles
    const bool m_may_stand_in;
};

// Returns the line of a host unit's table that describes the row. It begins with `*` for all
// kernels, and is empty for a blob.
std::string kernel_of(const BlobRow& blob);
// Returns the name of this host unit, or an empty string for a blob.
std::string host_unit_of(const BlobRow& blob);
// Returns the archs of each entry that the row has for `archs`. Device code has one for each arch.
// Host code, of which a process can have only one copy, has one for all of them.
std::vector<Strings> archs_of_entries(const BlobRow& blob, const Strings& archs);
// Returns the subject of messages about a blob.
Subject subject_of(const ManifestView& manifest, const BlobRow& blob, const std::string& arch_label);

}  // namespace lazyck::rt
