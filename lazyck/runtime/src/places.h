// Where a lazy library's bundle is.
#pragma once

#include <string>

#include "manifest_view.h"
#include "text.h"

namespace lazyck::rt {

// Where the bundle may be, in the order of preference: `given` (LAZYCK_ROOT) alone; else "lazyck" beside the library,
// which travels with it, and `baked` (from the manifest; if relative, below the library's directory). None where nobody
// knows where the library is.
Strings bundle_roots(const std::string& given, const std::string& baked, const std::string& library);

// That of `roots` whose bundle is the library's own; if none has a bundle, the first. Throws CompileError when there
// are bundles of other builds only: their sources must not end up under this build's key.
std::string root_of_blob(const Strings& roots, const std::string& library, const ManifestView& manifest,
                         const BlobRow& blob);

// The library of `manifest`, which lies in `directory`: by its file name, which need not be its soname.
std::string library_in(const std::string& directory, const ManifestView& manifest);

}  // namespace lazyck::rt
