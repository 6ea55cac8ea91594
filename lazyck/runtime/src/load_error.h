// What the dynamic loader's refusal of a blob means.
#pragma once

#include <string>

namespace lazyck::rt {

// The loader's `reason` in words that say what is missing and what to do about it; `library` is the lazy library's
// path.
std::string explain_load_error(const std::string& reason, const std::string& library);

}  // namespace lazyck::rt
