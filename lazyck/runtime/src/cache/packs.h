// Finds installed packs: packages of their own that hold entries for one build of a library. `pip`
// installs them beside the package that the library lives in.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"
#include "bundle/manifest_view.h"

namespace lazyck::rt {

struct Pack {
    std::string name, version;       // by which users install it
    std::string part;                // the name of its distribution, one of those that the pack was split into
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

// Returns sentences that say which packs are for other builds, and what to install. There is one
// sentence for each of these builds.
Strings explain_mismatches(const std::vector<Pack>& packs, const std::string& library, const ManifestView& manifest);

}  // namespace lazyck::rt
