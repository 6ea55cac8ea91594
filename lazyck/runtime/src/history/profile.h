// A profile records which blobs runs have used, one line each, appended as they are used. It can
// serve as a list of blobs, because the name comes first on each line.
//
// line: blob, library, archs, order, calls, seconds, peak KiB, rank, process, time, kernel;
//       separated by tabs
//     order     of the blob's first use in its process, from 1
//     calls     how often it was called, by sampling: in how many seconds of the run it was called;
//               0 if it was only loaded
//     seconds   that compiling took; peak KiB: memory of the compiler's largest process; both are 0
//               if the blob came from the cache
//     process   "<host>:<pid>:<start>", alike on all lines of a process; time: seconds since 1970
//     kernel    for a kernel that is compiled by itself: the line of its host unit's table
//               (units/src/units.h), with the character 31 for tabs; missing otherwise
//
// A blob has one line at its first use and, if the process ends in an orderly way, a second one
// with its calls. The last line of a blob and process counts. "#" begins a comment. Lines that do
// not parse are skipped. The version is 1.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/text.h"

namespace lazyck::rt {

struct ProfileRow {
    std::string blob, library, archs;
    unsigned order = 0;
    unsigned long calls = 0;
    double seconds = 0;
    long peak_kib = 0;
    std::string process;  // from which the row was read; empty in a plain list
    std::string kernel;   // the line of its host unit's table; empty: no kernel
};

// Appends rows to a profile. Reports the first failure and never throws.
void append_profile(const std::string& path, const std::vector<ProfileRow>& rows);

// Returns the rows of `library` in the profile at `path`, in recorded order. Each blob has one row,
// with the maxima over all runs. A plain list of names is a profile without the other columns.
// Throws CompileError if the file cannot be read.
std::vector<ProfileRow> read_profile(const std::string& path, const std::string& library);

}  // namespace lazyck::rt
