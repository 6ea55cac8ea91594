// What the parts of a lazy library share: its blobs, their states in this process, the recorder of
// their calls, and the store. An entry is got from a cache, or else by one thread that compiles it
// while the others wait.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/entry.h"
#include "error.hpp"
#include "history/profile.h"
#include "library/blobs.h"
#include "platform/threads.h"
#include "store/store.h"

namespace lazyck::rt {

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
    bool is_reported = false;      // as late: see Readiness
    unsigned order = 0;            // order of its first call in the current profile; 0: not called yet
    unsigned long calls = 0;       // number of samples in which it was called, in the current profile
};

struct States {
    // Guards what this struct, ProfileRecorder and Readiness remember. It is held
    // for moments only: never while compiling, and never while the dynamic loader works. A static
    // initializer of a blob that calls another blob holds the loader's lock while it waits here.
    // The handlers of fork take it first, then the locks of the store, and then the global ones
    // (see threads.h).
    std::mutex mutex;
    Changes changed;
    std::unordered_map<BlobId, BlobState> all;  // references into it stay valid
    Strings state_holders;                      // the loader's names of blobs with header state, in loading order
    unsigned in_flight = 0;                     // activities
    unsigned generation = 0;                    // number of forks that led to this process

    // These take the mutex.
    bool is_loaded(BlobId blob);
    // Waits until nothing is in flight, at most `seconds` (negative: for ever), and returns whether
    // that is so.
    bool drain(double seconds);

    // The mutex is held. The child has none of the threads that obtained entries (see owner_pid),
    // or that waited for them.
    void after_fork_in_child();
};

// Something in flight, for as long as this object exists. What was in flight at a fork is not in
// flight in the child.
class Activity {
 public:
    explicit Activity(States& states);
    Activity(const Activity&) = delete;
    Activity& operator=(const Activity&) = delete;
    ~Activity();

 private:
    States& m_states;
    unsigned m_generation;
};

// Keeps the library loaded, because threads of ours run its code for as long as the process lives.
// This calls the dynamic loader, so call it while no lock is held.
void stay_loaded();

// Returns what the slots of a blob point to. A part has none.
std::vector<void*> read_slots(const ManifestRow& at);
// Lets the slots of a blob point to its functions.
void store_slots(const ManifestRow& at, const std::vector<void*>& functions);

// The first call of a blob, for the profile at `path`.
struct FirstCall {
    std::string path;
    ProfileRow row;
};

// Records in a profile which blobs the program calls, in which order and how often.
class ProfileRecorder {
 public:
    ProfileRecorder(const Blobs& blobs, States& states) : m_blobs(blobs), m_states(states) {}

    // Records in the profile at `path` which blobs are called from now on. An empty path ends that.
    void start(const std::string& path);
    // Writes how often blobs were called.
    void finish();

    // These need the mutex of the states.
    bool is_recording() const { return !m_profile.empty(); }
    // Counts a call that came through the resolver. Returns it if it is the blob's first.
    std::optional<FirstCall> count_call(BlobId blob, BlobState& state);
    // The thread that samples is gone.
    void after_fork_in_child() { m_is_sampled = false; }

 private:
    ProfileRow profile_row(BlobId blob, const BlobState& state) const;
    void sample();

    const Blobs& m_blobs;
    States& m_states;
    std::string m_profile;  // path; empty: none
    unsigned m_order = 0;   // of the last blob that was called
    bool m_is_sampled = false;
};

struct Core {
    Core(const Config& config, std::string path)
        : blobs(config, std::move(path)),
          store(config, {blobs.path(), bundle_roots(config.root, blobs.manifest().root(), blobs.path())}, true) {}

    const Blobs blobs;
    States states;
    ProfileRecorder recorder{blobs, states};
    Store store;
    Lasting<Scope> scope;  // of this library
};

// Returns what this process or a cache has, or null if it must be compiled, or another thread is
// getting it. With `may_go_by_kernel`, the host unit of the blob will do. Throws CompileError.
std::shared_ptr<const Entry> find_entry(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel);

// Returns the entry. If it must be compiled, one thread at a time does so. The threads that waited
// share the result, even a failure, since they asked for the same attempt. The next call makes a
// new attempt, unless the compiler would fail in the same way again. Throws CompileError.
//
// While a thread compiles, it holds what others wait for: the blob and, within the store, locks and
// permits of the host. A waiting thread may hold the dynamic loader's lock (an initializer calls a
// blob) or a lock of the program. So the compiling thread calls neither the loader, nor the C
// library's name services or locale, nor the program's code.
std::shared_ptr<const Entry> obtain_entry(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel);

bool is_entry_cached(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel);

// Returns how the loader looks up what this library refers to. Throws CompileError.
Scope own_scope(const std::string& library);

// Keeps the loader from running this library's constructors a second time, once they run. To load a
// blob it initializes what the blob needs, and it counts a library whose destructors run as not
// initialized.
void forget_constructors();

// Returns whether this is called in a destructor of this library, which a dlclose runs.
bool is_being_closed();

// Loads the entry of a blob into the process, and stores the blob's slots. `archs` is for messages.
// Several threads may load the same entry. The loader maps it once, and all of them store the same
// addresses. But each of them joins device code for several archs, and the first one's is stored.
// Throws CompileError.
void load_entry(Core& core, BlobId blob, const Entry& entry, const std::string& archs);

}  // namespace lazyck::rt
