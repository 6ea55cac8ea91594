// The only starter of processes: argv lists, no shell.
#pragma once

#include <functional>
#include <string>

#include "text.h"

namespace lazyck::rt {

struct Command {
    Strings argv;
    Strings environment;  // NAME=value
    std::string cwd;      // ignored where the C library cannot set it (see can_set_cwd)
    int output = -1;      // stdout and stderr
};

enum class Ending {
    succeeded,
    failed,
    unknown,  // the program reaps or ignores its children itself; the command has ended
};

struct Outcome {
    Ending ending;
    std::string text;  // "exit status 1", "killed by signal 9 (Killed)", "cannot start ...: ..."
    bool has_started = true;
    int signal = 0;              // that killed it, or 0
    bool has_timed_out = false;  // killed here, because it took longer than allowed
    long peak_rss_kib = 0;       // of its largest process; 0 where unknown
    int exit_status = 0;         // of one that exited by itself
};

// Runs a command to its end in a process group of its own, stdin /dev/null, signals at their defaults. Calls `beat`
// every half minute with the seconds since the start.
Outcome run_command(const Command& command, const std::function<void(double)>& beat);

// Whether commands can be given a working directory: glibc from 2.29 on. Looked up at the first call, which takes the
// dynamic loader's lock: call it once before any lock of ours is held.
bool can_set_cwd();

}  // namespace lazyck::rt
