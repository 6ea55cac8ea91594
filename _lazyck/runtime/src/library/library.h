// The lazy library that this runtime is linked into: its slots, its blobs, and the state of each.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/lasting.h"
#include "bundle/manifest_view.h"
#include "error.hpp"
#include "lazyck.h"
#include "library/kernels.h"
#include "platform/files.h"
#include "record/prefetch.h"
#include "record/profile.h"
#include "store/store.h"

namespace lazyck::rt {

class Library {
 public:
    // Returns the object of this library, which is made at the first use; nothing runs when the
    // library is loaded. Throws CompileError; the next call tries again.
    static Library& get();

    // Stores all slots of the blob of slot `slot`, and returns that slot's function. `caller` is an
    // address in the code of the caller, or null.
    void* resolve(std::uint32_t slot, const void* caller);

    // Makes the device code that a handle needs ready, and returns it. It is that of the handle's
    // kernel or, if `is_whole` is set, of the whole source. Throws CompileError.
    const void* image_for(const Handle& handle, bool& is_whole);

    // A blob in the embedded manifest or, after those, in the one that LAZYCK_MANIFEST names. The
    // upper half is 0, or for a part of the blob the part's number plus one.
    using BlobId = std::uint64_t;

    // Makes all blobs whose names match ready, and returns how many. Throws CompileError.
    int prefetch(const char* pattern);

    // Makes the blobs of these names ready in the background. What is cached comes first, in this
    // order; then what is to be compiled, the longest first as far as the cache knows. With 0
    // `workers`, LAZYCK_JOBS counts. Throws CompileError for a name that no blob has.
    std::unique_ptr<Prefetch> prefetch_later(const Strings& names, unsigned workers);
    // Makes the blobs of a profile ready. Blobs that the library does not have, since it was built
    // anew, are left out with a warning. Throws CompileError if the profile cannot be read.
    std::unique_ptr<Prefetch> prefetch_later(const std::string& profile, unsigned workers);

    std::uint32_t blob_count() const;
    // Returns nullptr if there is no blob of this number.
    const char* blob_name(BlobId blob) const;
    // Returns whether a cache has what a call would load. Throws CompileError for a name that no
    // blob has.
    bool is_cached(const std::string& name);

    // Records in the profile at `path` which blobs are called from now on. An empty path ends the
    // record.
    void record(const std::string& path);

    // Makes those blobs ready after a blob's first call that the profile at `path` shows to follow
    // it, one at a time in the background. An empty path ends that. Throws CompileError if the
    // profile cannot be read.
    void speculate(const std::string& path);

    bool forbid_jit(bool is_forbidden) { return m_store.jit().forbid(is_forbidden); }
    void set_listener(Events::Callback listener) { m_store.events().set_listener(std::move(listener)); }

    // Forgets the failures that later calls would fail with. Returns the number of blobs concerned.
    int clear_failures();

    // Sets the cache for blobs that are not loaded yet. Throws CompileError if `path` cannot be a
    // cache.
    void set_cache_dir(const std::string& path);

    lazyck_stats stats();

    // Waits until nothing is in flight, at most `seconds` (negative: for ever), and returns whether
    // that is so.
    bool drain(double seconds);

 private:
    // Something in flight, for as long as this object exists. What was in flight at a fork is not
    // in flight in the child.
    class Activity {
     public:
        explicit Activity(Library& library);
        Activity(const Activity&) = delete;
        Activity& operator=(const Activity&) = delete;
        ~Activity();

     private:
        Library& m_library;
        unsigned m_generation;
    };

    struct BlobState {
        bool is_busy = false;  // a thread gets the entry
        bool is_loaded = false;
        int owner_pid = 0;
        std::thread::id owner;
        std::uint64_t attempts = 0;
        std::shared_ptr<const Entry> entry;
        std::shared_ptr<const CompileError> failure;  // of the last attempt
        bool is_failure_final = false;                // later calls for these archs fail with it, too
        Strings failed_archs;
        std::string archs;             // archs that it was loaded for
        std::vector<void*> functions;  // of a loaded blob, in the order of its slots
        std::vector<void*> lazy;       // the earlier contents of those slots
        bool is_reported = false;      // as late: see report_late
        unsigned order = 0;            // order of its first call in the current record; 0: not called yet
        unsigned long calls = 0;       // number of samples in which it was called, in the current record
    };

    struct Row {
        const ManifestView& manifest;
        std::uint32_t index;
    };

    // A call of a lazy function, and the address that it comes from, or null if that is not known.
    struct Call {
        std::uint32_t slot = 0;
        const void* from = nullptr;
    };

    // A blob, and what it is compiled for (null: the device of the thread that makes it ready). A
    // blob that is called may go by kernel. A blob that is prepared beforehand is compiled as a
    // whole, unless `part` names a kernel.
    struct Wanted {
        BlobId blob = 0;
        std::shared_ptr<const Strings> archs;
        bool is_called = false;
        std::string part, line;  // the kernel, and its line in a table if known
        Call call = {};
    };

    // The device code of a host unit.
    struct HostUnit {
        BlobId whole = 0;
        std::unordered_map<std::string, BlobId> kernels;  // by symbol
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
    void make_ready_for_call(const Wanted& wanted);
    void report_late(BlobId blob, double seconds);
    std::shared_ptr<const Entry> obtain(BlobId blob, const Strings& archs, bool may_go_by_kernel, const Call& call);
    std::shared_ptr<const Entry> found_entry(BlobId blob, const Strings& archs, bool may_go_by_kernel);
    bool is_in_cache(BlobId blob, const Strings& archs, bool may_go_by_kernel);
    std::optional<Entry> each_entry(const Row& at, const Strings& archs,
                                    const std::function<std::optional<Entry>(const Strings&)>& get);
    std::optional<Entry> find(BlobId blob, const Strings& archs, bool may_go_by_kernel);
    Entry make(BlobId blob, const Strings& archs, bool may_go_by_kernel);
    void* first_function(BlobId blob);
    void* open_blob(const ManifestView& manifest, const BlobRow& blob, const Entry& entry, std::string& reason);
    std::vector<void*> functions_of(BlobId blob, const Entry& entry, const std::string& archs);
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

    // The parts of a blob: those that the manifest alone tells, and all of them, with the kernels
    // of its table.
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

    // Held for moments only: never while compiling, and never while the dynamic loader works. A
    // static initializer of a blob that calls another blob holds the loader's lock while it waits
    // here.
    std::mutex m_mutex;
    std::unique_ptr<std::condition_variable> m_changed;
    std::unordered_map<BlobId, BlobState> m_states;
    unsigned m_in_flight = 0;   // activities
    unsigned m_generation = 0;  // number of forks that led to this process
    Strings m_state_holders;    // loader's names of blobs with header state, in loading order
    std::string m_record;       // profile to record to; empty: none
    unsigned m_order = 0;       // of the last blob that was called
    bool m_is_sampled = false;
    std::unique_ptr<Prefetch> m_prefetch;                             // of LAZYCK_PREFETCH
    std::unordered_map<BlobId, std::vector<BlobId>> m_neighbours;     // of blobs that were not called yet
    std::unordered_map<BlobId, std::vector<Wanted>> m_parts_to_load;  // once their host unit is loaded
    std::deque<Wanted> m_expected;                                    // to be made ready, the likeliest first
    bool m_is_expecting = false;                                      // a thread works on m_expected
    Lasting<std::unordered_map<std::string, HostUnit>> m_host_units;  // host units in the manifest, by name
    Lasting<std::unordered_map<std::string_view, std::uint32_t>> m_slots_by_name;
    std::unordered_set<BlobId> m_siblings;  // blobs that were started for another blob's call
    mutable Lasting<std::unique_ptr<Parts[]>> m_parts;
    std::unordered_map<BlobId, unsigned> m_compiled_kernels;  // number compiled here, by whole source
};

}  // namespace lazyck::rt
