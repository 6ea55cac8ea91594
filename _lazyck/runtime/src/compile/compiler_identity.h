// Tells whether a compiler is the one that a library was built with, as Python does it
// (`identity_of` in _lazyck/toolchains/base.py) where there may be no Python: on a worker of a
// compile service.
#pragma once

#include <string>
#include <string_view>

#include "bundle/manifest_view.h"

namespace lazyck::rt {

// Returns the identity that a compiler's `--version` output gives, such as
// "gcc12.2.0-8c1f0a3b5d7e".
std::string identity_in(std::string_view version_text);

// Throws CompileError, which names both, unless the compiler that `recipe` runs on this machine has
// the identity that the recipe records. `root` is the root of the bundle.
void check_compiler(const RecipeRow& recipe, const std::string& root);

}  // namespace lazyck::rt
