// Where a lazy library's bundle is.
#pragma once

#include <string>

namespace lazyck::rt {

// `given` (LAZYCK_ROOT); else `baked` (from the manifest; if relative, below the library's directory) as long as it
// exists; else "lazyck" beside the library.
std::string bundle_root(const std::string& given, const std::string& baked, const std::string& library);

}  // namespace lazyck::rt
