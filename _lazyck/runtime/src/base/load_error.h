// Explains why the dynamic loader refused a blob.
#pragma once

#include <string>

namespace lazyck::rt {

// Returns "name(parameters) [mangled]", or `symbol` unchanged if it is not a mangled C++ name.
std::string readable(const std::string& symbol);

// Explains the loader's `reason`: what is missing, and what to do about it. `library` is the path
// of the lazy library.
std::string explain_load_error(const std::string& reason, const std::string& library);

}  // namespace lazyck::rt
