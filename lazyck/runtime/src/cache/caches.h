// The caches of one process: the user's own, and those that are used where it cannot be written.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/text.h"
#include "cache/cache.h"
#include "cache/packs.h"
#include "platform/staging.h"

namespace lazyck::rt {

// Returns the first line of one of our exceptions, without our name.
std::string first_line_of(const std::exception& e);

class Caches {
 public:
    // `given` is the root that the user chose. If it is empty, the root is that of `name` below
    // `parent` (see Config::caches). `tiers` are the roots of caches that are only read.
    // `find_packs` is called at most once, by the first search that no other cache ends.
    Caches(const std::string& given, const std::string& parent, std::string name, const Strings& tiers,
           std::function<std::vector<Pack>()> find_packs);

    // Returns the user's own cache. Throws CompileError if there is no directory for it.
    std::shared_ptr<Cache> own();

    // Calls `look` with each cache until it returns true, and returns whether it did. The order is:
    // the user's own, those that stand in for it, the tiers, installed packs for the library's
    // build. Nothing is asked about packs before all others have been searched.
    bool search(const std::function<bool(Cache&)>& look);

    // Returns the installed packs, with those for other builds of the library.
    const std::vector<Pack>& packs();

    // Returns the caches that `search` begins with, all but the packs.
    std::vector<std::shared_ptr<Cache>> to_read();

    // Returns the cache to compile into. Throws CompileError if there is none.
    std::shared_ptr<Cache> to_write();

    // Replaces `cache`, where writing failed, with another one for all later writes, and warns.
    // Throws CompileError if there is no other one; the next call then starts again with the user's
    // own cache.
    void pass_over(const std::shared_ptr<Cache>& cache, const SystemFailure& reason);

    // Makes the next compile try the user's own cache again.
    void retry_own_cache();

    // Removes, at the end of the process, the caches that were made for it alone, unless a child
    // made by fork still uses them.
    void close();
    // Keeps the private caches from those who remove what is left over. Call this where descriptors
    // stay.
    void hold();

 private:
    std::shared_ptr<Cache> next_stand_in();
    void begin_again();

    std::string m_name;
    std::string m_no_own;  // why the user's own cache cannot be used
    std::mutex m_mutex;
    std::shared_ptr<Cache> m_own;
    std::vector<std::shared_ptr<Cache>> m_tiers;
    const std::function<std::vector<Pack>()> m_find_packs;
    std::optional<std::vector<Pack>> m_packs;  // empty: not searched for yet
    std::vector<std::shared_ptr<Cache>> m_packed;
    std::vector<std::shared_ptr<Cache>> m_used;  // the last one is written; empty only without m_own
    PrivateDirectories m_directories;
    std::vector<std::shared_ptr<Cache>> m_private;  // in these directories, for all of the process's life
    std::size_t m_next = 0;                         // the next stand-in
};

}  // namespace lazyck::rt
