// Makes blobs and their kernels ready: gets their entries and loads them. While the blob of a call
// is compiled, it begins to compile the other blobs that the calling function calls.
#pragma once

#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "library/core.h"
#include "library/loader.h"
#include "platform/threads.h"

namespace lazyck::rt {

class Readiness {
 public:
    Readiness(Core& core, Loader& loader) : m_core(core), m_loader(loader) {}

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

    std::vector<BlobId> siblings_of(const Call& call);
    void begin_siblings(const Call& call);

    Core& m_core;
    Loader& m_loader;
    std::unordered_map<BlobId, std::vector<Wanted>> m_parts_to_load;  // once their host unit is loaded
    Lasting<std::unordered_map<std::string_view, std::uint32_t>> m_slots_by_name;
    std::unordered_set<BlobId> m_begun;  // siblings, and the blobs whose calls began them
};

}  // namespace lazyck::rt
