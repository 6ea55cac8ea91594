// Whether a bundle has what the library's build put into it, and nothing else: a blob's key says so.
#pragma once

#include <sys/stat.h>

#include <map>
#include <mutex>
#include <string>

#include "manifest_view.h"

namespace lazyck::rt {

class Contents {
 public:
    // Whether the list of the bundle at `root` is that of the library of `manifest`, which has its digest.
    static bool is_own_list(const std::string& root, const ManifestView& manifest);

    // What keeps the bundle at `root` from being compiled from, or "": another list than the library's, a file that
    // `blob` may read and that is not as it was, or that a privileged process must not read since others can write it,
    // or one more file. A library whose manifest has no digest of the list has a bundle that was laid out by hand:
    // taken as it is, but for what a list there says.
    std::string find_fault(const std::string& root, const ManifestView& manifest, const BlobRow& blob);

    // What of that changed since, or "": also a file that was changed and changed back.
    std::string find_change(const std::string& root, const ManifestView& manifest, const BlobRow& blob);

 private:
    std::string look(const std::string& root, const ManifestView& manifest, const BlobRow& blob, bool is_again);
    std::string fault_of(const std::string& path, const std::string& digest, bool is_again);

    std::mutex m_mutex;
    std::map<std::string, struct stat> m_good;  // read before, and as they were then
};

}  // namespace lazyck::rt
