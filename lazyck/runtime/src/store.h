// Gets a blob's entry: look up, lock, look up again, compile. Used by every lazy library and by lazyck-rt.
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

#include "archive.h"
#include "cache.h"
#include "caches.h"
#include "config.h"
#include "contents.h"
#include "entry.h"
#include "events.h"
#include "manifest_view.h"
#include "named_copies.h"
#include "remote.h"

namespace lazyck::rt {

struct Counters {
    std::atomic<std::uint64_t> hits{0}, misses{0}, compiles{0}, failures{0}, damaged{0}, compile_ns{0};
    RemoteCounters remote;
};

// Bounds the compilers of this process.
class JobSlots {
 public:
    explicit JobSlots(unsigned count) : m_free(count) {}
    void acquire(const std::string& blob);
    // For what no call waits for: after all that do, unless these are so many that it pays for them.
    void acquire_for_later();
    bool try_acquire();
    void release();

    // From now on `blob` gets none before `first` has had one, or needs none.
    void put_behind(const std::string& blob, const std::string& first);
    void needs_none(const std::string& first);

 private:
    void let_pass(const std::string& first);

    std::mutex m_mutex;
    std::condition_variable m_changed;
    unsigned m_free;
    unsigned m_waiting = 0;                       // in acquire()
    std::map<std::string, std::string> m_behind;  // blob, first
};

// Where a lazy library and its bundle are.
struct Places {
    std::string library;
    Strings roots;  // where the bundle may be
};

class Store {
 public:
    // `may_stand_in`: where the cache cannot be written, compile into another place, for this process's own use.
    Store(const Config& config, Places places, bool may_stand_in = false);

    // The verified entry of blob `index` for `archs`, compiled if need be and allowed: what `find` finds, else what
    // `make` makes. Throws CompileError.
    Entry obtain(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // The same if a cache has it.
    std::optional<Entry> find(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // The same where none has it: after a second look under the blob's lock, compiled. Asks nothing of the dynamic
    // loader, nor of the C library's name services or locale, nor of code of the program, while it holds a lock or
    // slot.
    Entry make(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // The same where nobody is to compile it: of a remote cache, if one has it.
    std::optional<Entry> fetch(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Whether to compile blob `index` by its parts (see by_kernel.h), where it has some and nothing of it is cached.
    bool goes_by_kernel(const ManifestView& manifest, std::uint32_t index);
    // Keeps that a blob has no host unit, for the next decision on it and on its library's other blobs.
    void refuse_by_kernel(const ManifestView& manifest, std::uint32_t index);

    // Whether a cache has it; `path` is where it is, or would be in the user's own.
    bool is_cached(const ManifestView& manifest, std::uint32_t index, const Strings& archs, std::string& path);

    // What its entry is looked up by.
    EntryKey key_of(const ManifestView& manifest, const BlobRow& blob, const Strings& archs) const;

    // What blobs have in common that can share a precompiled preamble (see preamble.h): a digest of all that decides
    // what is in it; "": it has none.
    std::string preamble_key(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Makes that of blob `index` in the cache, from where compiles take it, unless it is there; "" or why there is
    // none. Throws CompileError.
    std::string make_preamble(const ManifestView& manifest, std::uint32_t index, const Strings& archs);
    // Whether a process that has just compiled the blob may be about to compile others that share its preamble. Once
    // for all blobs that are compiled the same way.
    bool should_make_preamble(const ManifestView& manifest, std::uint32_t index, const Strings& archs);

    // Throws CompileError when `path` cannot be a cache.
    void set_cache_dir(const std::string& path);

    // Has the next compile try again to write where writing failed before.
    void forget_bad_places();

    // Between the two another thread makes `blob` ready, after `first` has got a slot or `needs_no_slot`: compiles
    // leave slots to it.
    void announce(const std::string& blob, const std::string& first);
    void withdraw() { --m_announced; }
    void needs_no_slot(const std::string& first) { m_jobs->needs_none(first); }

    // From now on nothing is compiled, or again what is missing; returns how it was. LAZYCK_DISABLE_JIT is where it
    // starts.
    bool is_jit_forbidden() const { return m_is_jit_forbidden; }
    bool forbid_jit(bool is_forbidden) { return m_is_jit_forbidden.exchange(is_forbidden); }

    // Where events of this library are written down; "" where there is no cache.
    std::string history(const ManifestView& manifest);

    // At the end: writes what is to be written, and removes what was for this process alone.
    void close();

    // Handlers of fork. What other threads were changing is made anew in the child, and their slots are free there.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

    const Config& config() const { return m_config; }
    Counters& counters() { return m_counters; }
    Events& events() { return m_events; }
    NamedCopies& named_copies() { return *m_copies; }

 private:
    std::shared_ptr<Caches> caches(const ManifestView& manifest);
    // What compiling may take, by what this cache knows, and what came with the library.
    Guess guess(const ManifestView& manifest, const Costs& costs) const;
    std::string name_of(const ManifestView& manifest) const;
    struct Source {
        std::string root, path;
        bool is_in_bundle;
    };
    // The sources of an archived bundle are unpacked in `cache`.
    Source source_of(const ManifestView& manifest, const BlobRow& blob, Cache& cache);
    // Throws CompileError unless it may be compiled from.
    void check_source_of(const Source& source, const ManifestView& manifest, const BlobRow& blob);
    // Empty where nothing may be compiled and no remote cache has it.
    std::optional<Entry> compile_somewhere(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key,
                                           bool may_compile, Caches& caches);
    std::optional<Entry> compile(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key,
                                 bool may_compile, Cache& cache);
    // None where there are no remote caches.
    std::unique_ptr<RemoteEntry> ask_remotes(const Subject& subject, const Guess& guess, const EntryKey& key,
                                             bool may_compile, Cache& cache);
    static std::string preamble_key(const ManifestView& manifest, const BlobRow& blob, const Strings& archs,
                                    const Source& source);
    // The directory of the preamble of that key, if there is one; "": none. Throws CompileError where others could
    // have written it.
    static std::string find_preamble(const std::string& key, const Cache& cache);
    // An entry that was made of a text, from whichever cache; see texts.h.
    UniqueFd find_text_somewhere(const ManifestView& manifest, const EntryKey& text, const Strings& symbols);
    void tell_wait(Event event, const char* what, double begin, const Cache& cache);
    void bound(Cache& cache);
    [[noreturn]] void fail_frozen(const BlobRow& blob, const EntryKey& key, Cache& cache) const;

    const Config m_config;
    const Places m_places;
    Counters m_counters;
    Events m_events;
    std::atomic<bool> m_is_jit_forbidden;
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

// The line of a host unit's table that says what the row is of: `*` and more for all kernels; "" for a blob.
std::string kernel_of(const BlobRow& blob);
// The name of that host unit; "" for a blob.
std::string host_unit_of(const BlobRow& blob);
// What messages about a blob are about.
Subject subject_of(const ManifestView& manifest, const BlobRow& blob, const std::string& arch_label);

}  // namespace lazyck::rt
