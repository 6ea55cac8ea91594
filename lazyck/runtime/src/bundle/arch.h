// Decides which arch to compile for, and asks the GPU runtime that the process has loaded.
#pragma once

#include <cstdint>
#include <string>

#include "base/text.h"
#include "bundle/manifest_view.h"

namespace lazyck::rt {

// Returns the archs that blobs of recipe row `recipe` are compiled for. They are what the GPU
// runtime would take out of the fat binaries of these sources for the devices `asked` for
// (LAZYCK_ARCHS, --arch), if there are any. Else, if `may_ask`, for the current device and the
// process's other devices that there is code for. Else for the archs that the whole build asks for,
// or those of the recipe. `90-ptx80` stands for the code that the driver makes for 9.0 of PTX for
// 8.0. A recipe without arch flags makes host code, whose arch is the name of the library's
// machine. Takes the dynamic loader's lock. Throws CompileError if no arch can be determined.
Strings archs_for(const ManifestView& manifest, std::uint32_t recipe, const Strings& asked, bool may_ask);

// Returns advice to add to `message`, a compiler's error, if the error is about `archs` themselves;
// else an empty string.
std::string advice_on_arch(const std::string& message, const Strings& archs);

}  // namespace lazyck::rt
