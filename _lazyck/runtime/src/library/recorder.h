// Records in a profile which blobs the program calls, in which order and how often.
#pragma once

#include <optional>
#include <string>

#include "library/core.h"
#include "record/profile.h"

namespace lazyck::rt {

// The first call of a blob in a record, and the profile at `path` that it belongs to.
struct FirstCall {
    std::string path;
    ProfileRow row;
};

class Recorder {
 public:
    explicit Recorder(Core& core) : m_core(core) {}

    // Records in the profile at `path` which blobs are called from now on. An empty path ends the
    // record.
    void record(const std::string& path);
    // Writes how often blobs were called.
    void finish();

    // These need the mutex of the states.
    bool is_recording() const { return !m_record.empty(); }
    // Counts a call that came through the resolver. Returns it if it is the blob's first.
    std::optional<FirstCall> count_call(BlobId blob, BlobState& state);
    // The thread that samples is gone.
    void after_fork_in_child() { m_is_sampled = false; }

 private:
    ProfileRow profile_row(BlobId blob, const BlobState& state) const;
    void sample();

    Core& m_core;
    std::string m_record;  // profile to record to; empty: none
    unsigned m_order = 0;  // of the last blob that was called
    bool m_is_sampled = false;
};

}  // namespace lazyck::rt
