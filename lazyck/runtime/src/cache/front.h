// Loads a library behind an empty one, its front. The loader looks up what the library refers to in
// the program, then in what the front needs, in order. So a front makes several files one library.
#pragma once

#include <string>

#include "base/text.h"
#include "platform/empty_library.h"

namespace lazyck::rt {

// How the loader looks up what a blob refers to and what it loads: as it does for the library that
// the blob belongs to.
struct Scope {
    Strings before = {};      // loaded libraries that are searched before the blob, by the loader's names
    std::string search = {};  // where the blob's dlopen searches first, as in DT_RPATH
    bool is_deep = false;     // whether all that is searched before the program (RTLD_DEEPBIND)
    bool stays = false;       // whether the loader would never unload the library if it held the blob
};

// Loads an empty library. Returns the loader's handle, or null with `reason`.
void* open_empty(const EmptyLibrary& library, int flags, std::string& reason);

// Loads `name` such that its references are looked up as `scope` says, and only then in the library
// itself. Returns the handle for dlsym, or null with `reason`. A library that is loaded already
// stays as it is. The loader keeps it as long as the library that this code is in, or for ever.
void* open_library(const Scope& scope, const std::string& name, std::string& reason);

}  // namespace lazyck::rt
