// The command line of lazyck-rt.
#pragma once

#include <string>

#include "base/text.h"

namespace lazyck::rt {

extern const char k_usage[];

struct ToolOptions {
    std::string verb;
    std::string from;
    std::string library;
    std::string archs;
    std::string toolchain;  // for `make`: a home that came with the action
    Strings blobs;
    bool is_quiet = false;
    bool is_again = false;
    bool has_blobs = false;
};

// Throws CompileError with the usage.
ToolOptions parse_options(int argc, char** argv);

}  // namespace lazyck::rt
