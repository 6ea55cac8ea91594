// Decides which arch to compile for, and asks the GPU runtime that the process has loaded.
#pragma once

#include <cstdint>
#include <string>

#include "base/text.h"
#include "bundle/manifest_view.h"

namespace lazyck::rt {

// Returns the archs that blobs of recipe row `recipe` are compiled for. These are `asked`
// (LAZYCK_ARCHS, --arch), if there are any. Else, if `may_ask`, they are the archs of the current
// device and of the process's other devices that the build has code for. Else they are the archs of
// the build. A recipe without arch flags makes host code, whose arch is the name of the library's
// machine. Takes the dynamic loader's lock. Throws CompileError if no arch can be determined.
Strings archs_for(const ManifestView& manifest, std::uint32_t recipe, const Strings& asked, bool may_ask);

// Returns advice to add to `message`, a compiler's error, if the error is about `archs` themselves;
// else an empty string.
std::string advice_on_arch(const std::string& message, const Strings& archs);

}  // namespace lazyck::rt
