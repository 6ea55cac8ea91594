// The caches of one process: the user's own, and the places that are used where it cannot be
// written.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache.h"
#include "failure.h"
#include "private_place.h"
#include "text.h"

namespace lazyck::rt {

class Caches {
 public:
    // `given` is the root that the user chose. If it is empty, the root is that of `name` below
    // `parent` (see Config::caches). `tiers` are the roots of caches that are only read.
    Caches(const std::string& given, const std::string& parent, std::string name, const Strings& tiers);

    // Returns the user's own cache. Throws CompileError if there is no place for it.
    std::shared_ptr<Cache> own();

    // Returns the caches to look in: the user's own first, then those that stand in for it, the
    // tiers last.
    std::vector<std::shared_ptr<Cache>> to_read();

    // Returns the cache to compile into. Throws CompileError if there is none.
    std::shared_ptr<Cache> to_write();

    // Replaces `cache`, where writing failed, with another place for all later writes, and says so.
    // Throws CompileError if there is no other place; the next call then starts again with the
    // user's own cache.
    void pass_over(const std::shared_ptr<Cache>& cache, const SystemFailure& reason);

    // Makes the next compile try the user's own place again.
    void forget_bad_places();

    // Removes, at the end of the process, the places that were made for it alone, unless a child
    // made by fork still uses them.
    void close();

 private:
    struct Private {
        PrivatePlace place;
        std::shared_ptr<Cache> cache;
    };

    std::shared_ptr<Cache> next_stand_in();
    std::shared_ptr<Cache> private_below(const std::string& parent);
    bool is_private(const std::shared_ptr<Cache>& cache) const;
    void begin_again();

    std::string m_name;
    std::string m_no_own;  // why there is no place for the user's own cache
    std::mutex m_mutex;
    std::shared_ptr<Cache> m_own;
    std::vector<std::shared_ptr<Cache>> m_tiers;
    std::vector<std::shared_ptr<Cache>> m_used;  // the last one is written; empty only without m_own
    std::vector<Private> m_private;              // of this process alone, for all of its life
    std::size_t m_next = 0;                      // the next stand-in
};

}  // namespace lazyck::rt
