// The only starter of processes: argv lists, no shell.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "text.h"

namespace lazyck::rt {

struct Command {
    Strings argv;
    Strings environment;         // NAME=value
    int directory = -1;          // where it runs; -1: here
    int input = -1;              // stdin; -1: /dev/null
    int output = -1;             // stdout and stderr
    int question = -1;           // our end of a socket whose other end it has
    double timeout_seconds = 0;  // after that it is killed, with all that it started; 0: never
    std::function<void(pid_t)> started = [](pid_t) {};
    std::function<void(double)> beat = [](double) {};  // see run_command
    // Is called where there is something to read from `question`. False: there will be nothing more. Must not throw:
    // the command would wait for its answer.
    std::function<bool()> asked = [] { return false; };
};

enum class Ending {
    succeeded,
    failed,
    unknown,  // the program's own code reaped the command, or keeps the kernel from telling how it ended
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

// Whether the kernel hands processes to this one whose parents have ended, as to the first process of a container:
// whoever does not wait for them is left with their remains.
bool adopts_orphans();

// Waits, on a thread of its own, for such a process if this one adopts it. The library must stay loaded.
void end_orphan(pid_t pid);

// Runs a command to its end: signals at their defaults (ignored SIGHUP, SIGINT and SIGQUIT stay so),
// in this process's group, so that Ctrl-C at a terminal reaches it. Calls `beat` as a WaitNotice
// is due, with the seconds since the start. The command is killed when the calling thread or process ends before it.
Outcome run_command(const Command& command);

}  // namespace lazyck::rt
