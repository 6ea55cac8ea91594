// Whether a bundle still has what the library's build put into it: a blob's key says so.
#pragma once

#include <sys/stat.h>

#include <map>
#include <mutex>
#include <string>

#include "manifest_view.h"

namespace lazyck::rt {

class Contents {
 public:
    // What is wrong with the first file of the bundle at `root` that `blob` may read and that is not as it was; "" if
    // none. A bundle without a list of its contents was laid out by hand: taken as it is.
    std::string find_change(const std::string& root, const ManifestView& manifest, const BlobRow& blob);

 private:
    bool is_as_built(const std::string& path, const std::string& digest);

    std::mutex m_mutex;
    std::map<std::string, struct stat> m_good;  // read before, and as they were then
};

}  // namespace lazyck::rt
