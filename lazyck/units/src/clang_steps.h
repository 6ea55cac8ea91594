// The steps of a HIP compile by clang, as `-###` prints them for a command.
#pragma once

#include <string>
#include <vector>

#include "units.h"

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
};

constexpr char k_image_section[] = ".hip_fatbin";
// Stands in place of a kernel's parameters if its source has no other kernel: the whole source is
// compiled for it.
constexpr char k_only_kernel[] = "only";

// Returns the steps of `command`, which compiles one source to an object, with temporary files in
// `directory`. Throws Refused if clang prints other steps than are known here.
ClangSteps clang_steps_of(const Words& command, const std::string& directory);

// Returns the compile `step` with `options` of the compiler proper.
Step with_options(Step step, const Words& options);

}  // namespace lazyck::units
