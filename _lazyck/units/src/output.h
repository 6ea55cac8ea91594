// Writes units: assembler text, and libraries that hold an image of device code.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "units.h"

namespace lazyck::units {

// Returns `text` as a string literal of assembler text or of C++.
std::string quoted(std::string_view text);

// Writes the file `<output>.cost` of a job, with `what` as its line.
void write_cost(const Job& job, const std::string& what);

// How libraries with images are made: the compiler, the section, and the alignment of the image, as
// a power of two.
struct Library {
    std::string compiler, section;
    int alignment;
};

// Makes the shared library `job.output`, in which each of the names `symbols` stands for the
// contents of the file `image`. Throws Refused.
void make_library(const Library& library, const Job& job, const std::set<std::string>& symbols,
                  const std::string& image);

// Makes it with the reason why `kernel` cannot be compiled by itself, and writes the cost.
void make_refusal(const Library& library, const Job& job, const Kernel& kernel, const std::string& reason);

}  // namespace lazyck::units
