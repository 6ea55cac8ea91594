// Unpacks bundles whose sources were deployed as one archive into the cache, at the first compile
// that needs them.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "cache/cache.h"
#include "cache/directory.h"

namespace lazyck::rt {

// Returns where the archive of `library`'s part of the bundle at `root` would be.
std::string archive_path(const std::string& root, const std::string& library);

class Archives {
 public:
    // Returns the root of a bundle in `cache` that has the contents of the archive at `path`. The
    // archive is unpacked if that bundle is missing, if it lacks the file `source`, or if `is_good`
    // returns that its contents changed. A bundle that was found good is not checked again in this
    // process. Needs tar and gzip. Throws CompileError.
    std::string unpacked(const std::string& path, const std::string& library, const std::string& source, Cache& cache,
                         const std::function<bool(const std::string& root)>& is_good);

 private:
    std::string digest_of(const std::string& path);
    bool is_known_good(const std::string& root);

    std::mutex m_mutex;
    std::map<std::string, std::pair<struct stat, std::string>> m_digests;  // by path, with the status then
    std::set<std::string> m_good;                                          // roots of bundles
};

// Removes unpacked bundles that were not used for a week from the cache `root`. Ignores failures.
void remove_unused_bundles(const Directory& root);

}  // namespace lazyck::rt
