// Makes the blobs ready that names or a profile list, in the background.
#pragma once

#include <memory>
#include <string>

#include "library/readiness.h"
#include "record/prefetch.h"

namespace lazyck::rt {

// Makes the blobs of these names ready. What is cached comes first, in this order; then what is to
// be compiled, the longest first as far as the cache knows. With 0 `workers`, LAZYCK_JOBS counts.
// Throws CompileError for a name that no blob has.
std::unique_ptr<Prefetch> prefetch_names(Core& core, Readiness& readiness, const Strings& names, unsigned workers);

// Makes the blobs of a profile ready. Blobs that the library does not have, since it was built
// anew, are left out with a warning. Throws CompileError if the profile cannot be read.
std::unique_ptr<Prefetch> prefetch_profile(Core& core, Readiness& readiness, const std::string& profile,
                                           unsigned workers);

}  // namespace lazyck::rt
