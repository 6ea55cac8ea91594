// What units are written as: assembler text, and libraries that hold an image of device code.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "units.h"

namespace lazyck::units {

// `text` as a string of assembler text or of C++.
std::string quoted(std::string_view text);

std::string joined(const std::string& directory, const char* name);

// Writes the file `<output>.cost` of a job: `what` begins it.
void write_cost(const Job& job, const std::string& what);

// How libraries with images are made: by which compiler, in which section, at addresses that are multiples of
// 2^`alignment`.
struct Library {
    std::string compiler, section;
    int alignment;
};

// Makes the shared library `job.output` that has `content`, assembler text, under each of the names `symbols`. Throws
// Refused.
void make_library(const Library& library, const Job& job, const std::set<std::string>& symbols,
                  const std::string& content);

}  // namespace lazyck::units
