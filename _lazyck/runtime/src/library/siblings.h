// Finds the other blobs that a calling function calls, and begins to compile them while the blob of
// the call is compiled.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/lasting.h"
#include "library/states.h"
#include "store/store.h"

namespace lazyck::rt {

class Siblings {
 public:
    using MakeReady = std::function<void(const Wanted&)>;

    Siblings(const Blobs& blobs, States& states, Store& store) : m_blobs(blobs), m_states(states), m_store(store) {}

    // Calls `make_ready` for each other blob that the function behind `call` calls, on a thread of
    // its own. A blob is begun only once.
    void begin(const Call& call, const MakeReady& make_ready);

 private:
    std::vector<BlobId> siblings_of(const Call& call);

    const Blobs& m_blobs;
    States& m_states;
    Store& m_store;
    Lasting<std::unordered_map<std::string_view, std::uint32_t>> m_slots_by_name;
    std::unordered_set<BlobId> m_begun;  // these, and those whose calls began them
};

}  // namespace lazyck::rt
