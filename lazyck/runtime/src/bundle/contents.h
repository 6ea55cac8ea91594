// Checks that a bundle has exactly what the library's build put into it, as a blob's key assumes.
#pragma once

#include <sys/stat.h>

#include <map>
#include <mutex>
#include <string>

#include "bundle/manifest_view.h"

namespace lazyck::rt {

class Contents {
 public:
    // Returns whether the bundle at `root` has the list whose digest is in `manifest`.
    static bool is_own_list(const std::string& root, const ManifestView& manifest);

    // Returns what prevents compiling from the bundle at `root`, or an empty string. That is a list
    // which is not the library's, a changed or missing file that `blob` may read, a file that the
    // list does not have, or, in a privileged process, a file that others can write. A library
    // whose manifest has no digest of a list has a bundle that was laid out by hand; then only what
    // a list there says is checked. With `is_again`, a file that was changed and changed back since
    // the last check counts, too.
    std::string find_fault(const std::string& root, const ManifestView& manifest, const BlobRow& blob,
                           bool is_again = false);

 private:
    std::string fault_of(const std::string& path, const std::string& digest, bool is_again);

    std::mutex m_mutex;
    std::map<std::string, struct stat> m_good;  // by path, with the status when they were read
};

}  // namespace lazyck::rt
