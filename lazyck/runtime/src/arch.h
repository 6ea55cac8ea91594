// Which arch to compile for: asks the HIP or CUDA that the process has loaded.
#pragma once

#include <cstdint>
#include <string>

#include "manifest_view.h"
#include "text.h"

namespace lazyck::rt {

// What blobs of recipe row `recipe` are compiled for: `asked` (LAZYCK_ARCHS, --arch), else the current device if
// `may_ask` (and what the build has for the AMD devices before it), else the archs of the build. A recipe without arch
// flags makes host code: the name of the library's machine. Takes the dynamic loader's lock. Throws CompileError when
// nothing says an arch.
Strings archs_for(const ManifestView& manifest, std::uint32_t recipe, const Strings& asked, bool may_ask);

// What to tell the user beside `message`, a compiler's error, if it is about `archs` themselves; else "".
std::string advice_on_arch(const std::string& message, const Strings& archs);

}  // namespace lazyck::rt
