// Keeps the process's environment as it was at the first use, and behind it the user's file of
// settings, ~/.config/lazyck/lazyck.env. No other file reads them. A later setenv in another thread
// may free what getenv has just found, so nothing reads the environment again. A child made by
// fork, which may get a rank of its own, reads it anew at its first use.
#pragma once

#include <string>

#include "base/text.h"

namespace lazyck::rt {

// Returns whether this process has more rights than the user who started it (setuid, setgid, file
// capabilities).
bool is_privileged();

// Returns the value of `variable`, or an empty string. A variable of lazyck's that is not in the
// environment has the value that the user's file gives it. The result is always empty in a
// privileged process: the user who starts a setuid program must not decide what it loads, what it
// compiles, or where.
std::string environment(const char* variable);

// Returns where the value of `variable` comes from, as the beginning of a message: "environment
// variable ", or the user's file.
std::string origin_of(const char* variable);

// Returns what the user should know about lazyck's variables: unknown ones, with the variable that
// was probably meant, and parts of the user's file that were not read.
Strings environment_problems();

// Returns the whole environment, as NAME=value. It is empty in a privileged process.
const Strings& whole_environment();

// Returns the directories of `path`, a PATH, in which to look for programs: the absolute ones, or
// the system's own if there are none. Relative ones are left out, because another user may have put
// files into a working directory.
std::string search_path(const std::string& path);

// Returns the rank in a distributed job (RANK, else LOCAL_RANK), such as "3", or an empty string.
std::string rank_number();
// Returns the rank in words, such as "rank 3", or an empty string.
std::string rank_name();
// As it was at the first use.
const std::string& host_name();

// Must be called in the child after a fork.
void forget_environment_in_child();

}  // namespace lazyck::rt
