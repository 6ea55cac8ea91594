// Starts processes, and is the only place that does so: with argv lists and without a shell.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "base/text.h"
#include "platform/files.h"

namespace lazyck::rt {

struct Command {
    Strings argv;
    Strings environment;         // NAME=value
    int directory = -1;          // where it runs; -1: the current directory
    int input = -1;              // stdin; -1: /dev/null
    int output = -1;             // stdout
    int errors = -1;             // stderr; -1: where stdout goes
    int question = -1;           // the caller's end of a socket of which the command has the other end
    int read_rule = -1;          // of a ReadRule that limits it; -1: none
    double timeout_seconds = 0;  // after which it is killed, with all that it started; 0: never
    std::function<void(pid_t)> started = [](pid_t) {};
    std::function<void(double)> beat = [](double) {};  // see run_command
    // Called when there is something to read from `question`. Returns false if no more will come.
    // It must not throw, since the command would wait for its answer.
    std::function<bool()> asked = [] { return false; };
};

enum class Ending {
    succeeded,
    failed,
    unknown,  // the program's own code waited for the command, or keeps the kernel from telling how it ended
};

struct Outcome {
    Ending ending;
    std::string text;  // "exit status 1", "killed by signal 9 (Killed)", "cannot start ...: ..."
    bool has_started = true;
    bool is_missing = false;     // not started because there is no such program for this machine
    int signal = 0;              // the signal that killed it, or 0
    bool has_timed_out = false;  // killed here, because it took longer than allowed
    long peak_rss_kib = 0;       // of its largest process; 0 if unknown
    int exit_status = 0;         // if it exited by itself
};

// A thread may have its children begin in another PID namespace than its own (unshare(2)). It can
// start no thread then, and the first process that it starts is that namespace's init, with which
// all others there end. As long as this object exists, its children begin in its own.
class ChildrenHere {
 public:
    ChildrenHere();
    ChildrenHere(const ChildrenHere&) = delete;
    ChildrenHere& operator=(const ChildrenHere&) = delete;
    ~ChildrenHere();

    // Returns false if the kernel does not let them. It wants CAP_SYS_ADMIN.
    bool is_so() const { return m_is_so; }

 private:
    UniqueFd m_theirs;  // the other namespace
    bool m_is_so = true, m_is_moved = false;
};

// Gives the calling thread, which must be one of ours, a table of descriptors of its own, with
// nothing but the standard ones in it. Returns false if the system cannot.
bool take_own_descriptors();

// Returns whether the kernel makes this process the parent of processes whose parents have ended,
// as it does for the first process of a container. Such a process must wait for them, or they stay
// as zombies.
bool adopts_orphans();

// Waits in another thread for process `pid` if this process adopts orphans. The library must stay
// loaded.
void end_orphan(pid_t pid);

// Runs a command to its end. Its signals have their default actions, except that SIGHUP, SIGINT and
// SIGQUIT stay ignored if they were. It is in this process's group, so that Ctrl-C at a terminal
// reaches it. Whenever a WaitNotice is due, `beat` is called with the seconds since the start. The
// command is killed if the calling thread or process ends before it.
Outcome run_command(const Command& command);

}  // namespace lazyck::rt
