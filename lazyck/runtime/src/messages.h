// Lines for the user: on stderr, or in the file that LAZYCK_LOG_FILE names; each in one write, so that those of several
// processes do not mix.
#pragma once

#include <string>

namespace lazyck::rt {

// The lower, the more it matters. LAZYCK_LOG names the last one that is written; `info` is where it stands by default.
enum class Level { error, warn, info, debug };

// Whether lines of this level are written: to leave out the work of making them.
bool is_said(Level level);

// Writes "[lazyck] <line>", in a distributed job "[lazyck] [rank 3] <line>": one line, whatever names are in it. With
// LAZYCK_LOG_FORMAT=json an object with the members time, level, pid, rank and message.
void say(Level level, const std::string& line);

// A warning, the first time in this process that it is about `what`.
void say_once(const std::string& what, const std::string& line);

// Silences `say` (for `lazyck-rt --quiet`, whose caller reports).
void silence();

// Throws CompileError that names the variable when the environment asks for a log that there is not. (`say` itself
// takes what makes sense of it.)
void check_log_settings();

}  // namespace lazyck::rt
