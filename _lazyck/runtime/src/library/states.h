// The state of each blob of the library in this process, the lock that guards it, and the slots,
// which are the pointers that stubs jump through.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cache/entry.h"
#include "error.hpp"
#include "library/blobs.h"

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
    unsigned order = 0;            // order of its first call in the current record; 0: not called yet
    unsigned long calls = 0;       // number of samples in which it was called, in the current record
};

class States {
 public:
    // Returns the lock of what this class, Loader, Recorder, Readiness and Speculation
    // remember. It is held for moments only: never while compiling, and never while the dynamic
    // loader works. A static initializer of a blob that calls another blob holds the loader's lock
    // while it waits here. The handlers of fork take it first, then the locks of the store, and
    // then the global ones (see threads.h).
    std::mutex& mutex() { return m_mutex; }

    // These need the mutex. References into the states stay valid.
    BlobState& of(BlobId blob) { return m_states[blob]; }
    std::unordered_map<BlobId, BlobState>& all() { return m_states; }
    void wait(std::unique_lock<std::mutex>& lock) { m_changed->wait(lock); }

    // These take the mutex.
    bool is_loaded(BlobId blob);
    // Waits until nothing is in flight, at most `seconds` (negative: for ever), and returns whether
    // that is so.
    bool drain(double seconds);

    // Wakes the threads that wait.
    void notify_all() { m_changed->notify_all(); }

    // The mutex is held. The child has none of the threads that obtained entries (see owner_pid),
    // or that waited for them.
    void after_fork_in_child();

 private:
    friend class Activity;

    std::mutex m_mutex;
    std::unique_ptr<std::condition_variable> m_changed = std::make_unique<std::condition_variable>();
    std::unordered_map<BlobId, BlobState> m_states;
    unsigned m_in_flight = 0;   // activities
    unsigned m_generation = 0;  // number of forks that led to this process
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

}  // namespace lazyck::rt
