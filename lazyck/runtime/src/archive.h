// Bundles whose sources were deployed as one file: unpacked into the cache by the first compile that needs them.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "cache.h"
#include "directory.h"

namespace lazyck::rt {

// Where the archive of `library`'s part of the bundle at `root` would be.
std::string archive_path(const std::string& root, const std::string& library);

class Archives {
 public:
    // A bundle root in `cache` that has what the archive at `path` has; unpacked if it is not there, if it lacks the
    // file `source`, or if `is_good`, which is asked once in a process, finds that it is not what it was. Needs tar and
    // gzip. Throws CompileError.
    std::string unpacked(const std::string& path, const std::string& library, const std::string& source, Cache& cache,
                         const std::function<bool(const std::string& root)>& is_good);

 private:
    std::string digest_of(const std::string& path);
    bool is_known_good(const std::string& root);

    std::mutex m_mutex;
    std::map<std::string, std::pair<struct stat, std::string>> m_digests;  // read before, and as they were then
    std::set<std::string> m_good;                                          // roots
};

// Removes from the cache `root` what was unpacked and not used for a week. Failures are passed over.
void remove_unused_bundles(const Directory& root);

}  // namespace lazyck::rt
