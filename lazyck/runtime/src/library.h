// The lazy library that this runtime is linked into: its slots, its blobs, and what has become of each.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "error.hpp"
#include "files.h"
#include "kernels.h"
#include "lasting.h"
#include "lazyck.h"
#include "manifest_view.h"
#include "prefetch.h"
#include "profile.h"
#include "store.h"

namespace lazyck::rt {

class Library {
 public:
    // The one of this library, made at the first use; nothing runs when the library is loaded. Throws CompileError, and
    // the next call tries again.
    static Library& get();

    // Stores all slots of the blob of slot `slot`, and returns that slot's function.
    // `caller`: an address in the code of whoever calls, or null.
    void* resolve(std::uint32_t slot, const void* caller);

    // The device code that a handle needs, made ready: of its kernel, or, where `is_whole` says so, of all its source.
    // Throws CompileError.
    const void* image_for(const Handle& handle, bool& is_whole);

    // A blob in the embedded manifest, or, after those, in the one that LAZYCK_MANIFEST names; and in the upper half,
    // where a part of that one is meant, the part's number plus one.
    using BlobId = std::uint64_t;

    // Makes ready all blobs whose names match; returns how many. Throws CompileError.
    int prefetch(const char* pattern);

    // Makes the blobs of these names ready in the background, what is cached first and in this order, then what is to
    // be compiled, the longest first as far as the cache knows. `workers` 0: LAZYCK_JOBS. Throws CompileError for a
    // name that no blob has.
    std::unique_ptr<Prefetch> prefetch_later(const Strings& names, unsigned workers);
    // Makes the blobs of a profile ready. Those that the library does not have, since it was built anew, are left out,
    // with a warning. Throws CompileError when the profile cannot be read.
    std::unique_ptr<Prefetch> prefetch_later(const std::string& profile, unsigned workers);

    std::uint32_t blob_count() const;
    // nullptr: there is none of this number.
    const char* blob_name(BlobId blob) const;
    // Whether a cache has what a call now would load. Throws CompileError for a name that no blob has.
    bool is_cached(const std::string& name);

    // Which blobs are called is from now on recorded in the profile at `path`; "": no more.
    void record(const std::string& path);

    // From now on a blob's first call has those made ready, one at a time in the background, that the profile at `path`
    // shows to follow; "": no more. Throws CompileError when it cannot be read.
    void speculate(const std::string& path);

    bool forbid_jit(bool is_forbidden) { return m_store.forbid_jit(is_forbidden); }
    void set_listener(Events::Callback listener) { m_store.events().set_listener(std::move(listener)); }

    // Forgets the failures that later calls would be answered with; returns of how many blobs.
    int clear_failures();

    // For blobs that are not loaded yet. Throws CompileError when `path` cannot be a cache.
    void set_cache_dir(const std::string& path);

    lazyck_stats stats();

 private:
    struct BlobState {
        bool is_busy = false;  // a thread obtains the entry
        bool is_loaded = false;
        int owner_pid = 0;
        std::thread::id owner;
        std::uint64_t attempts = 0;
        std::shared_ptr<const Entry> entry;
        std::shared_ptr<const CompileError> failure;  // of the last attempt
        bool is_failure_final = false;                // it is the answer to later calls too, for these archs
        Strings failed_archs;
        std::string archs;             // that it was loaded for
        std::vector<void*> functions;  // of a loaded one, in the order of its slots
        std::vector<void*> lazy;       // what those slots held before
        unsigned order = 0;            // of its first call while there is a record; 0: none yet
        unsigned long calls = 0;       // samples in which it was called, while there is a record
    };

    struct Row {
        const ManifestView& manifest;
        std::uint32_t index;
    };

    // A call of a lazy function, and where it comes from; null: nobody knows.
    struct Call {
        std::uint32_t slot = 0;
        const void* from = nullptr;
    };

    // A blob, and what it is compiled for; null: for the device of the thread that makes it ready. What is called may
    // go by kernel; what is to be ready beforehand is all of the blob, or the kernel that `part` names.
    struct Wanted {
        BlobId blob = 0;
        std::shared_ptr<const Strings> archs;
        bool is_called = false;
        std::string part, line;  // and that one's line in a table, if it is known
        Call call = {};
    };

    // The device code of a host unit.
    struct HostUnit {
        BlobId whole = 0;
        std::unordered_map<std::string, BlobId> kernels;  // by their symbols
    };

    Library(const Config& config, std::string path);
    static void before_fork();
    static void after_fork_in_parent();
    static void after_fork_in_child();

    Row row(BlobId blob) const;
    BlobId blob_of_slot(std::uint32_t slot) const;
    bool is_loaded(BlobId blob);
    Strings archs_here(BlobId blob);
    std::vector<Wanted> wanted_here(const std::vector<BlobId>& blobs);
    void make_ready(const Wanted& wanted);
    std::shared_ptr<const Entry> obtain(BlobId blob, const Strings& archs, bool may_go_by_kernel, const Call& call);
    std::shared_ptr<const Entry> found_entry(BlobId blob, const Strings& archs, bool may_go_by_kernel);
    bool is_in_cache(BlobId blob, const Strings& archs, bool may_go_by_kernel);
    std::optional<Entry> find(BlobId blob, const Strings& archs, bool may_go_by_kernel);
    Entry make(BlobId blob, const Strings& archs, bool may_go_by_kernel);
    void* first_function(BlobId blob);
    void* open_blob(const ManifestView& manifest, const BlobRow& blob, const Entry& entry, std::string& reason);
    void load(BlobId blob, const Entry& entry, const std::string& archs);
    void begin();
    bool is_at_hand(const Wanted& wanted);
    const HostUnit* loaded_host_unit(BlobId blob);
    void make_part_ready(const Wanted& wanted);
    void load_parts(BlobId blob);
    std::unique_ptr<Prefetch> prefetch_rows(const std::vector<ProfileRow>& rows, unsigned workers);
    std::optional<Wanted> wanted_by_name(const std::string& name, const std::unordered_map<std::string, BlobId>& ids);
    void forget(BlobId blob, const Entry& entry);
    void* function_for_call(BlobId blob, std::uint32_t function);
    void store_slots(const Row& at, const std::vector<void*>& functions);
    std::uint32_t first_blob() const;
    ProfileRow profile_row(BlobId blob, const BlobState& state);
    void sample();
    void finish_record();
    std::unordered_map<std::string, BlobId> ids_by_name() const;
    void expect_neighbours(BlobId blob);
    std::vector<BlobId> siblings_of(const Call& call);
    void expect_siblings(const Call& call);
    void make_ready_later(const std::vector<Wanted>& wanted);
    void expect_whole_source(BlobId kernel, BlobId whole, std::size_t kernels);
    void expect_others_like(const Row& at, const Strings& archs);
    void make_expected_ready();
    void stay_loaded();
    static void at_exit();
    static void at_sample();

    const HostUnit& host_unit(const Handle& handle);
    const HostUnit& host_unit_by(BlobId blob, const char* table);
    BlobId blob_of_name(const std::string& name);

    // Of a blob: its parts as far as nothing but the manifest tells them, and with the kernels of its table.
    struct Parts {
        Lasting<ManifestView> plain, full;
        Lasting<HostUnit> unit;
    };
    Parts& parts(BlobId blob) const;
    static BlobId part_of(BlobId blob, std::uint32_t part) { return blob | (BlobId{part} + 1) << 32; }
    const void* image_of(const HostUnit& unit, const Handle& handle, bool& is_whole);

    std::string m_path;
    ManifestView m_embedded;
    MappedFile m_fallback_file;
    ManifestView m_fallback;
    Store m_store;

    // Held for moments only: never while compiling, and never while the dynamic loader works, whose lock a static
    // initializer of a blob that calls another blob holds while it waits here.
    std::mutex m_mutex;
    std::unique_ptr<std::condition_variable> m_changed;
    std::unordered_map<BlobId, BlobState> m_states;
    Strings m_state_holders;  // blobs with state of headers, by the loader's names, in the order in which they came
    std::string m_record;     // "": nothing is recorded
    unsigned m_order = 0;     // of the last blob that was
    bool m_is_sampled = false;
    std::unique_ptr<Prefetch> m_prefetch;                             // of LAZYCK_PREFETCH
    std::unordered_map<BlobId, std::vector<BlobId>> m_neighbours;     // of those that were not called yet
    std::unordered_map<BlobId, std::vector<Wanted>> m_parts_to_load;  // when their host unit is loaded
    std::deque<Wanted> m_expected;                                    // to be made ready, the likeliest first
    bool m_is_expecting = false;                                      // a thread does that
    Lasting<std::unordered_map<std::string, HostUnit>> m_host_units;  // of those that the library has
    Lasting<std::unordered_map<std::string_view, std::uint32_t>> m_slots_by_name;
    std::unordered_set<BlobId> m_siblings;  // that were begun for a call of another
    mutable Lasting<std::unique_ptr<Parts[]>> m_parts;
    std::unordered_map<BlobId, unsigned> m_compiled_kernels;  // how many this process has compiled, by the whole source
};

}  // namespace lazyck::rt
