// The steps of a HIP compile by clang, as `-###` prints them for the command at hand.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "steps.h"

namespace lazyck::units {

// The device compiles (one for each arch), the steps that bundle their output into one image, and
// the compile of the host code, which includes the image. The steps write their files to the
// directory that was given.
struct ClangSteps {
    std::vector<Step> device;
    std::vector<Step> between;
    Step host;

    // The path of the image that the host code includes.
    std::string image() const;
    // Removes the place of the source, and how it is compiled, from the name `__hip_cuid_…` in
    // device code.
    void forget_place();
    // Has the bundler leave device code as it is, so that the runtime can join it with that of
    // other archs.
    void leave_uncompressed();
};

// Returns the steps of `command`, which compiles one source to an object, with temporary files in
// `directory`. Throws Refused if clang prints other steps than are known here.
ClangSteps clang_steps_of(const Words& command, const std::string& directory);

// Returns the preprocessed input of the compile `step`, by way of a temporary file in `directory`.
// Throws Refused.
std::string preprocessed(const Step& step, const std::string& directory);

// Returns the files that the compile `step` reads. They are found by preprocessing, with a
// temporary file in `directory`. Throws Refused.
std::set<std::string> files_of(const Step& step, const std::string& directory);

}  // namespace lazyck::units
