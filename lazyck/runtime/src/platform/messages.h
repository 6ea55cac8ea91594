// Writes lines for the user, on stderr or in the file that LAZYCK_LOG_FILE names. Each line is one
// write, so that lines of several processes do not mix.
#pragma once

#include <chrono>
#include <string>

namespace lazyck::rt {

// Levels are in order of importance. LAZYCK_LOG names the last one that is written, by default
// `info`.
enum class Level { error, warn, info, debug };

// Returns whether the constructors of the library that this code is in run, or have run.
bool constructors_run();

// Returns whether lines of this level are written, so that callers can skip the work of composing
// them.
bool is_said(Level level);

// Tells what a line is about: `words` is for the line itself, the other members are for programs.
// An empty string means that there is none.
struct Subject {
    std::string words;  // for example "scale for gfx942"
    std::string library, blob, kernel, arch;
};

// Holds what a line tells programs besides its text. docs/observe.md lists the events and outcomes.
struct Fields {
    const char* event = "";  // empty: "failure", "warning" or "note", by the line's level
    Subject subject = {};
    double seconds = -1;  // that it took so far; negative if nothing was timed
    const char* outcome = "";
};

// Writes "[lazyck] <line>", or in a distributed job "[lazyck] [rank 3] <line>". It is always one
// line, whatever names are in it. With LAZYCK_LOG_FORMAT=json it is an object: time, level, event,
// pid, message, the rank if known, and the members of `fields` that are set.
void log_message(Level level, const std::string& line, const Fields& fields = {});

// Writes a warning, unless this process has already written one about `what`.
void log_once(const std::string& what, const std::string& line, const Fields& fields = {});

// Writes to descriptor 2, if it still is the standard error stream. Ignores errors, and a reader
// that is gone.
void write_to_error_stream(const std::string& text);

// Silences `say` (for `lazyck-rt --quiet`, whose caller reports).
void silence();

// Throws CompileError that names the variable if the environment has an invalid setting of the log.
// (`say` itself ignores such a setting.)
void check_log_settings();

// Tells when a process that waits should say so: after two seconds, and then every half minute.
class WaitNotice {
 public:
    using Clock = std::chrono::steady_clock;

    // Returns the seconds since the wait began.
    double waited() const { return std::chrono::duration<double>(Clock::now() - m_start).count(); }

    // Returns the seconds until the next line is due, or a negative number if one is due.
    double left() const { return std::chrono::duration<double>(m_next - Clock::now()).count(); }

    // Returns true once for each line that is due.
    bool is_due() {
        if (Clock::now() < m_next) return false;
        m_next += std::chrono::seconds(30);
        return true;
    }

 private:
    const Clock::time_point m_start = Clock::now();
    Clock::time_point m_next = m_start + std::chrono::seconds(2);
};

}  // namespace lazyck::rt
