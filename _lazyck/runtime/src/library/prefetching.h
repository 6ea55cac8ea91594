// Makes the blobs ready that names or a profile list, in the background.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "library/readiness.h"
#include "library/states.h"
#include "record/prefetch.h"
#include "record/profile.h"
#include "store/store.h"

namespace lazyck::rt {

class Prefetching {
 public:
    Prefetching(const Blobs& blobs, States& states, Store& store, Readiness& readiness)
        : m_blobs(blobs), m_states(states), m_store(store), m_readiness(readiness) {}

    // Makes the blobs of these names ready. What is cached comes first, in this order; then what is
    // to be compiled, the longest first as far as the cache knows. With 0 `workers`, LAZYCK_JOBS
    // counts. Throws CompileError for a name that no blob has.
    std::unique_ptr<Prefetch> begin(const Strings& names, unsigned workers);
    // Makes the blobs of a profile ready. Blobs that the library does not have, since it was built
    // anew, are left out with a warning. Throws CompileError if the profile cannot be read.
    std::unique_ptr<Prefetch> begin(const std::string& profile, unsigned workers);

 private:
    // What is to be made ready, and the seconds that each compile is expected to take (0: unknown).
    struct Plan {
        std::vector<Wanted> wanted;
        std::vector<double> seconds;
    };

    std::unique_ptr<Prefetch> begin(const std::vector<ProfileRow>& rows, unsigned workers);
    Plan plan(const std::vector<ProfileRow>& rows) const;
    std::optional<Wanted> wanted_by_name(const std::string& name,
                                         const std::unordered_map<std::string, BlobId>& ids) const;
    double expected_seconds(const Wanted& wanted) const;

    const Blobs& m_blobs;
    States& m_states;
    Store& m_store;
    Readiness& m_readiness;
};

}  // namespace lazyck::rt
