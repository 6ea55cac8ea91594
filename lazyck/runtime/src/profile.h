// A profile: which blobs runs have used, one line each, appended as they are used. It is a blob list too: names come
// first on a line.
//
// line: blob, library, archs, order, calls, seconds, peak KiB, rank, process, time, kernel; separated by tabs
//     order     of the blob's first use in its process, from 1
//     calls     how often it was called, sampled: the seconds of the run in which it was; 0 for what was only loaded
//     seconds   that compiling took, peak KiB of the compiler's largest process; 0 when it came from the cache
//     kernel    of a kernel that is compiled by itself: the line of its host unit's table (units/src/units.h), with the
//               character 31 for tabs; missing for all else
//     process   "<host>:<pid>:<start>", the same on all lines of one process; time: seconds since 1970
// A blob has a line at its first use, and at the process's end, if that was orderly, one more with its calls: the last
// line of a blob and process counts. "#" begins a comment. Lines that do not parse are passed over. Version 1.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "text.h"

namespace lazyck::rt {

struct ProfileRow {
    std::string blob, library, archs;
    unsigned order = 0;
    unsigned long calls = 0;
    double seconds = 0;
    long peak_kib = 0;
    std::string process;  // that it was read of; "" in a plain list
    std::string kernel;   // the line of its host unit's table; "": no kernel
};

// Appends rows to a profile. Says once when that fails; nothing throws.
void append_profile(const std::string& path, const std::vector<ProfileRow>& rows);

// Calls `take` with each row of `library` in the profile at `path`, as they stand there. A plain list of names is a
// profile that knows no more. Throws CompileError when the file cannot be read.
void for_each_row(const std::string& path, const std::string& library, const std::function<void(ProfileRow&)>& take);

// The rows of `library` in the profile at `path`, in recorded order, each blob once with the most that any run says of
// it. Throws CompileError when the file cannot be read.
std::vector<ProfileRow> read_profile(const std::string& path, const std::string& library);

}  // namespace lazyck::rt
