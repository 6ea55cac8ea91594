#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "files.h"
#include "process_tree.h"

namespace lazyck::rt {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds k_first_beat{5};
constexpr std::chrono::seconds k_beat_interval{30};
constexpr int k_poll_ms = 20;  // without pidfd_open (Linux before 5.3)
constexpr std::size_t k_stack_size = 64 * 1024;
constexpr std::size_t k_kernel_mask_size = 8;  // bytes of a signal mask as the kernel knows it
constexpr unsigned long k_ignored = 1;         // SIG_IGN

std::vector<char*> pointers(const Strings& words) {
    std::vector<char*> out;
    for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
    out.push_back(nullptr);
    return out;
}

// argv[0] looked up in the PATH that the command will have; posix_spawnp would take ours.
std::string find_program(const Command& command) {
    const std::string& name = command.argv[0];
    if (name.find('/') != std::string::npos) return name;
    std::string path = "/usr/local/bin:/usr/bin:/bin";
    for (const std::string& variable : command.environment) {
        if (variable.rfind("PATH=", 0) == 0) path = variable.substr(5);
    }
    for (const std::string& directory : split(path, ":")) {
        const std::string candidate = directory + "/" + name;
        if (is_file(candidate) && access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return "";
}

// What the child reads between clone and exec. It shares our memory: everything is made before, nothing is allocated.
struct Start {
    const char* program;
    char* const* argv;
    char* const* environment;
    const char* cwd;
    int output;
    int failure_pipe;  // takes an errno value; closed by exec
    long parent;
};

// Bare system calls: in the child those of the C library could be a sanitizer's, which would change what it knows of
// us.
template <typename... Words>
long call(long number, Words... words) {
    return syscall(number, words...);
}

// Leaves `descriptor` as number `wanted` to the program.
__attribute__((no_sanitize("address", "thread", "undefined"))) bool give(int descriptor, int wanted) {
    return call(SYS_dup3, descriptor, wanted, 0) == wanted;
}

// Runs in the child, on a stack of its own.
__attribute__((no_sanitize("address", "thread", "undefined"))) int start_child(void* data) {
    const Start& start = *static_cast<const Start*>(data);
    const unsigned long by_default[8] = {};  // the kernel's struct sigaction: the handler comes first
    for (int signal = 1; signal < NSIG; ++signal) {
        unsigned long old[8] = {};
        call(SYS_rt_sigaction, signal, nullptr, old, k_kernel_mask_size);
        // Ignored by nohup and the like: the compiler is to live through a hangup as we do.
        const bool may_be_ignored = signal == SIGHUP || signal == SIGINT || signal == SIGQUIT;
        if (may_be_ignored && old[0] == k_ignored) continue;
        call(SYS_rt_sigaction, signal, by_default, nullptr, k_kernel_mask_size);
    }
    // Above the standard ones first: the program may have closed its own, so that ours have their numbers.
    const int pipe = static_cast<int>(call(SYS_fcntl, start.failure_pipe, F_DUPFD_CLOEXEC, 3));
    const int out = static_cast<int>(call(SYS_fcntl, start.output, F_DUPFD_CLOEXEC, 3));
    const int null = static_cast<int>(call(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC, 0));
    const int in = static_cast<int>(call(SYS_fcntl, null, F_DUPFD_CLOEXEC, 3));
    bool is_good = pipe >= 0 && give(in, 0) && give(out, 1) && give(out, 2);
    is_good = is_good && (*start.cwd == '\0' || call(SYS_chdir, start.cwd) == 0);
    // Whoever ends us, by SIGKILL too, ends the compiler: nobody would take what it makes.
    is_good = is_good && call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0;
    if (is_good && call(SYS_getppid) == start.parent) {
        const unsigned long nothing_blocked = 0;
        call(SYS_rt_sigprocmask, SIG_SETMASK, &nothing_blocked, nullptr, k_kernel_mask_size);
        call(SYS_execve, start.program, start.argv, start.environment);
    }
    const int error = errno;
    call(SYS_write, pipe, &error, sizeof error);
    call(SYS_exit_group, 127);
    return 127;
}

// The process's id, or minus an errno value. Not posix_spawn: a child that sends no signal at its end is not reaped by
// a program that ignores SIGCHLD, nor by a handler that waits for any child, so its exit status is ours to read.
pid_t start_process(const Command& command, const std::string& program) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return -errno;
    const UniqueFd from_child(ends[0]);
    UniqueFd to_parent(ends[1]);
    const std::vector<char*> argv = pointers(command.argv), environment = pointers(command.environment);
    std::vector<char> stack(k_stack_size);
    sigset_t all, before;
    sigfillset(&all);
    Start start = {program.c_str(), argv.data(), environment.data(), command.cwd.c_str(), command.output,
                   ends[1],         getpid()};
    // No handler of the program may run in the child, which shares its memory.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const auto clone_with = [&](int end_signal) {
        void* const top =
            reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(stack.data() + stack.size()) & ~15UL);
        return clone(start_child, top, CLONE_VM | CLONE_VFORK | end_signal, &start);
    };
    pid_t pid = clone_with(0);
    if (pid < 0 && errno == EINVAL) pid = clone_with(SIGCHLD);  // under emulators
    const int clone_error = errno;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (pid < 0) return -clone_error;
    to_parent = UniqueFd();
    int error = 0;
    ssize_t size;
    do {
        size = read(from_child.get(), &error, sizeof error);
    } while (size < 0 && errno == EINTR);
    if (size != sizeof error) return pid;
    while (waitpid(pid, nullptr, __WALL) < 0 && errno == EINTR) {
    }
    return -error;
}

Outcome from_wait(int status, const rusage& used) {
    Outcome outcome{Ending::failed, ""};
    outcome.peak_rss_kib = used.ru_maxrss;
    if (WIFEXITED(status)) {
        if (WEXITSTATUS(status) == 0) outcome.ending = Ending::succeeded;
        outcome.text = "exit status " + std::to_string(WEXITSTATUS(status));
    } else {
        outcome.signal = WTERMSIG(status);
        outcome.text = "killed by signal " + std::to_string(outcome.signal) + " (" + strsignal(outcome.signal) + ")";
    }
    return outcome;
}

// Looks whether the process has ended; nothing if not.
std::optional<Outcome> poll_end(pid_t pid) {
    int status = 0;
    rusage used = {};
    pid_t ended;
    do {
        ended = wait4(pid, &status, WNOHANG | __WALL, &used);
    } while (ended < 0 && errno == EINTR);
    if (ended == 0) return std::nullopt;
    if (ended == pid) return from_wait(status, used);
    // Somebody else was first. Until an unreaped child ends, both calls find it.
    if (kill(pid, 0) == 0) return std::nullopt;
    return Outcome{Ending::unknown, "unknown exit status"};
}

Outcome wait_for(pid_t pid, const Command& command) {
#ifdef SYS_pidfd_open
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
#else
    const UniqueFd process;
#endif
    const Clock::time_point start = Clock::now();
    Clock::time_point next_beat = start + k_first_beat;
    bool has_timed_out = false;
    const auto ended = [&](Outcome outcome) {
        outcome.has_timed_out = has_timed_out;
        return outcome;
    };
    while (true) {
        if (const auto outcome = poll_end(pid)) return ended(*outcome);
        const auto now = Clock::now();
        const std::chrono::duration<double> spent = now - start;
        if (!has_timed_out && command.timeout_seconds > 0 && spent.count() > command.timeout_seconds) {
            has_timed_out = true;
            kill_tree(pid);
        }
        if (now >= next_beat) {
            command.beat(spent.count());
            next_beat += k_beat_interval;
        }
        auto left = std::chrono::duration<double>(next_beat - now).count();
        if (!has_timed_out && command.timeout_seconds > 0)
            left = std::min(left, command.timeout_seconds - spent.count());
        if (process) {
            pollfd wanted = {process.get(), POLLIN, 0};
            // Readable at the end, whoever reaps; a moment later there is nothing left to wait for.
            if (poll(&wanted, 1, static_cast<int>(std::clamp(left * 1000 + 1, 1.0, 30000.0))) > 0) {
                if (const auto outcome = poll_end(pid)) return ended(*outcome);
                return ended({Ending::unknown, "unknown exit status"});
            }
        } else {
            poll(nullptr, 0, k_poll_ms);
        }
    }
}

}  // namespace

Outcome run_command(const Command& command) {
    const std::string program = find_program(command);
    if (program.empty()) {
        return {Ending::failed, "cannot start '" + command.argv[0] + "': not found in PATH", false};
    }
    const pid_t pid = start_process(command, program);
    if (pid < 0) return {Ending::failed, "cannot start '" + program + "': " + system_text(-pid), false};
    command.started(pid);
    return wait_for(pid, command);
}

}  // namespace lazyck::rt
