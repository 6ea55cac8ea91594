// Makes libraries without code. The loader treats them as any library, so each has it do something:
// load others in an order, search directories, or know a name.
#pragma once

#include <string>

#include "base/text.h"

namespace lazyck::rt {

struct EmptyLibrary {
    Strings needed;           // what the loader loads with it, in this order, by names or paths
    std::string search = {};  // DT_RPATH: where the libraries that it needs search what they load, first
    std::string only = {};    // DT_RUNPATH: where it searches itself
    Strings symbols = {};     // variables of its own
};

// Returns the contents of such a library's file, for this machine.
std::string contents_of(const EmptyLibrary& library);

}  // namespace lazyck::rt
