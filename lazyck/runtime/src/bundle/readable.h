// Decides what a compile may read besides its bundle and its own directory: the toolchain and the
// system.
#pragma once

#include <string>

#include "base/text.h"
#include "bundle/manifest_view.h"

namespace lazyck::rt {

struct Readable {
    Readable() = default;
    // `home` is the toolchain's home, or empty. `others` are the bundle and the like.
    Readable(const RecipeRow& recipe, const std::string& home, const Strings& others);

    // Returns what to do about the first file that a compiler's `output` names and that it could
    // not read, although this process can. The result is empty if there is none.
    std::string advice_on(const std::string& output) const;

    // The home, and the directories around the compilers of the recipe and the interpreters of
    // those that are scripts, as far as these are not the system's. A path may be a chain of links:
    // the directories around each are there.
    Strings toolchain;
    Strings files;     // all files and directories that may be read
    std::string path;  // the directories of PATH that may be read
};

}  // namespace lazyck::rt
