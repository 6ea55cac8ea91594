// Lines for the user: on stderr, or in the file that LAZYCK_LOG_FILE names; each in one write, so that those of several
// processes do not mix.
#pragma once

#include <string>

namespace lazyck::rt {

// The lower, the more it matters. LAZYCK_LOG names the last one that is written; `info` is where it stands by default.
enum class Level { error, warn, info, debug };

// Whether lines of this level are written: to leave out the work of making them.
bool is_said(Level level);

// What a line is about: `words` for the line itself, the others for programs. "": there is none.
struct Subject {
    std::string words;  // "scale for gfx942"
    std::string library, blob, kernel, arch;
};

// What a line tells programs besides its text. docs/observe.md has the events and outcomes.
struct Fields {
    const char* event = "";  // "": "failure", "warning" or "note", by the line's level
    Subject subject = {};
    double seconds = -1;  // that it took, so far; negative: nothing took time
    const char* outcome = "";
};

// Writes "[lazyck] <line>", in a distributed job "[lazyck] [rank 3] <line>": one line, whatever names are in it. With
// LAZYCK_LOG_FORMAT=json an object: time, level, event, pid, message, and what there is of rank and `fields`.
void say(Level level, const std::string& line, const Fields& fields = {});

// A warning, the first time in this process that it is about `what`.
void say_once(const std::string& what, const std::string& line, const Fields& fields = {});

// Silences `say` (for `lazyck-rt --quiet`, whose caller reports).
void silence();

// Throws CompileError that names the variable when the environment asks for a log that there is not. (`say` itself
// takes what makes sense of it.)
void check_log_settings();

}  // namespace lazyck::rt
