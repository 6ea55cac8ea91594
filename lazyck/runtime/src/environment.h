// The process's environment as it was at the first use, and the user's file of settings behind it: the only file that
// reads them. A later setenv in another thread may free what getenv has just found, so nothing reads it again; a child
// made by fork, which may get a rank of its own, reads it anew at its first use.
#pragma once

#include <string>

#include "text.h"

namespace lazyck::rt {

// Whether this process has more rights than whoever started it (setuid, setgid, file capabilities).
bool is_privileged();

// The value of `variable`, or "". One of lazyck's that is not in the environment has the value that the user's file
// gives it. Always "" in a privileged process: whoever starts a setuid program is not to say what it loads, compiles,
// or where.
std::string environment(const char* variable);

// Where the value of `variable` comes from, as the beginning of a message: "environment variable ", or the user's file.
std::string origin_of(const char* variable);

// What is to be told about lazyck's variables: unknown ones, and what of the user's file was not read.
Strings environment_problems();

// All of it, NAME=value each. Empty in a privileged process.
const Strings& whole_environment();

// Of `path`, a PATH, what may name programs: its absolute directories, or the system's own if none is. What lies in a
// working directory may be anybody's.
std::string search_path(const std::string& path);

// "3" in a distributed job (RANK, else LOCAL_RANK), else "".
std::string rank_number();
// "rank 3", or "".
std::string rank_name();

// Handler of fork.
void forget_environment_in_child();

}  // namespace lazyck::rt
