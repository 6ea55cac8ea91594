// Finds installed packs: packages of their own that hold entries for one build of a library. `pip`
// installs them beside the package that the library lives in.
#pragma once

#include <string>
#include <vector>

#include "manifest_view.h"

namespace lazyck::rt {

struct Pack {
    std::string name, version;       // of its distribution
    std::string base, base_version;  // of the distribution that it was made for, which has the library
    std::string installed;           // the version of `base` that is installed there, if its name tells
    std::string digest;              // of the library's build that it was made for
    std::string root;                // the cache with its entries
    bool is_for_this_build = false;
};

// Returns the packs for `library`, the file of `manifest`, in the nearest directory above it that
// has any `*.dist-info`. Only an entry point in the group LAZYCK_PACKS_GROUP names a pack. Says,
// once, which packs are passed over since others could write to them.
std::vector<Pack> find_packs(const std::string& library, const ManifestView& manifest);

// Returns a sentence that says why a pack for another build cannot be used, and what to install.
std::string explain_mismatch(const Pack& pack, const std::string& library, const ManifestView& manifest);

}  // namespace lazyck::rt
