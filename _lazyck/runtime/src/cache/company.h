// Loads a library behind others, so that its references are looked up in these first.
#pragma once

#include <string>

#include "base/text.h"

namespace lazyck::rt {

// Loads `name` such that the loader looks up each of its references in the program, then in
// `before` (names of loaded libraries) in this order, and only then in the library itself, as if
// all of them were files of one library. Returns the handle for dlsym, or null with `reason`. A
// library that is loaded already stays as it is.
void* load_behind(const Strings& before, const std::string& name, std::string& reason);

}  // namespace lazyck::rt
