// The steps of a compile of HIP by clang, as its own `-###` shows them for the command at hand.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "steps.h"

namespace lazyck::units {

// The device's compiles, one for each arch; what makes one image of what they made; and the compile of the host's code,
// which includes that. Files that they leave are named by paths in the directory that was given.
struct ClangSteps {
    std::vector<Step> device;
    std::vector<Step> between;
    Step host;

    // Where the image is that the host's code includes.
    std::string image() const;
    // Has device code not say, in the name `__hip_cuid_…`, where and how its source is compiled.
    void forget_place();
};

// The steps of `command`, which compiles one source to an object, with temporary files in `directory`. Throws Refused
// where they are not those that are known.
ClangSteps clang_steps_of(const Words& command, const std::string& directory);

// What the preprocessor makes of what `step`, a compile, reads, by way of a temporary file in `directory`. Throws
// Refused.
std::string preprocessed(const Step& step, const std::string& directory);

// The files that `step`, a compile, reads; they are found by preprocessing only, with a temporary file in `directory`.
// Throws Refused.
std::set<std::string> files_of(const Step& step, const std::string& directory);

}  // namespace lazyck::units
