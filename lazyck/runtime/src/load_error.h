// What the dynamic loader's refusal of a blob means.
#pragma once

#include <string>

namespace lazyck::rt {

// "name(parameters) [mangled]", or the symbol as it is where it is no C++ name.
std::string readable(const std::string& symbol);

// The loader's `reason` in words that say what is missing and what to do about it; `library` is the lazy library's
// path.
std::string explain_load_error(const std::string& reason, const std::string& library);

}  // namespace lazyck::rt
