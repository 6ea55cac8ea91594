// Makes blobs and their kernels ready: gets their entries and loads them.
#pragma once

#include <unordered_map>
#include <vector>

#include "library/entries.h"
#include "library/host_units.h"
#include "library/loader.h"
#include "library/siblings.h"
#include "library/states.h"
#include "store/store.h"

namespace lazyck::rt {

class Readiness {
 public:
    Readiness(const Blobs& blobs, States& states, Store& store, HostUnits& host_units, Entries& entries, Loader& loader,
              Siblings& siblings);

    // Makes a blob ready, or the kernel of it that is named. Throws CompileError.
    void make_ready(const Wanted& wanted);
    // Makes a blob ready that the program calls. Under LAZYCK_JIT=warn, a call that had to wait for
    // a compile after warm-up is reported. Throws CompileError.
    void make_ready_for_call(const Wanted& wanted);
    // Makes those parts ready that waited for their host unit, which is loaded now.
    void load_parts(BlobId blob);
    // Returns whether it can be made ready without a compiler, and without waiting for one.
    bool is_at_hand(const Wanted& wanted);

 private:
    const HostUnit* loaded_host_unit(BlobId blob);
    void make_part_ready(const Wanted& wanted);
    void report_late(BlobId blob, double seconds);

    const Blobs& m_blobs;
    States& m_states;
    Store& m_store;
    HostUnits& m_host_units;
    Entries& m_entries;
    Loader& m_loader;
    Siblings& m_siblings;
    std::unordered_map<BlobId, std::vector<Wanted>> m_parts_to_load;  // once their host unit is loaded
};

}  // namespace lazyck::rt
