// The caches of one process: the user's, and what stands in for it where it cannot be written.
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
    // `given` is where the user wants it, or "": that of `name` below `parent` (see Config::caches). `tiers` are the
    // roots of those that are only looked in.
    Caches(const std::string& given, const std::string& parent, std::string name, const Strings& tiers);

    // The user's own. Throws CompileError when there is no place for it.
    std::shared_ptr<Cache> own();

    // Those to look in: the user's own first, then what stands in for it, the tiers last.
    std::vector<std::shared_ptr<Cache>> to_read();

    // That to compile into. Throws CompileError when there is none.
    std::shared_ptr<Cache> to_write();

    // From now on another one is written instead of `cache`, where writing failed; says so. Throws CompileError when
    // there is no other, and the next call begins with the user's own again.
    void pass_over(const std::shared_ptr<Cache>& cache, const SystemFailure& reason);

    // Has the next compile try the user's own place again.
    void forget_bad_places();

    // At the process's end: removes the places that were for it alone, unless a child made by fork still uses them.
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
    std::string m_no_own;  // why there is no place for the user's own
    std::mutex m_mutex;
    std::shared_ptr<Cache> m_own;
    std::vector<std::shared_ptr<Cache>> m_tiers;
    std::vector<std::shared_ptr<Cache>> m_used;  // the last one is written; never empty but for m_own
    std::vector<Private> m_private;              // of this process alone, kept for all of its life
    std::size_t m_next = 0;                      // which stand-in comes next
};

}  // namespace lazyck::rt
