// Finds a lazy library's bundle.
#pragma once

#include <string>

#include "base/text.h"
#include "bundle/manifest_view.h"

namespace lazyck::rt {

// Returns where the bundle may be, in the order of preference. `given` (LAZYCK_ROOT) excludes all
// others. Else the first is "lazyck" beside the library, which travels with it; the second is
// `baked` (from the manifest), which may be relative to the library's directory. The result is
// empty if the library's path is unknown and neither `given` nor an absolute `baked` is there.
Strings bundle_roots(const std::string& given, const std::string& baked, const std::string& library);

// Returns the root whose bundle is the library's own, or the first root if none has a bundle.
// Throws CompileError if there are only bundles of other builds: their sources must not be cached
// under this build's key.
std::string root_of_blob(const Strings& roots, const std::string& library, const ManifestView& manifest,
                         const BlobRow& blob);

// Returns the path of the library of `manifest` in `directory`. The file name need not be the
// soname.
std::string library_in(const std::string& directory, const ManifestView& manifest);

}  // namespace lazyck::rt
