#include "platform/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <vector>

#include "machine/machine.h"
#include "platform/environment.h"
#include "platform/files.h"
#include "platform/messages.h"
#include "platform/process_tree.h"
#include "platform/threads.h"

// This is the C library's clone under its other name: the thread sanitizer takes `clone` for a
// fork.
extern "C" __attribute__((weak)) void __tsan_acquire(void*);
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* data, ...) noexcept;

namespace lazyck::rt {

namespace {

constexpr std::size_t k_stack_size = 64 * 1024;
// Their numbers on every machine; missing in older headers.
constexpr long k_close_range = 436, k_landlock_restrict_self = 446;
constexpr long k_close_range_unshare = 2;
constexpr long k_last_descriptor = 0x7fffffff, k_last_guess = 4096;
constexpr std::size_t k_kernel_mask_size = 8;  // size in bytes of a signal mask of the kernel
constexpr unsigned long k_ignored = 1;         // SIG_IGN
constexpr int k_no_status = -1;

std::vector<char*> pointers(const Strings& words) {
    std::vector<char*> out;
    for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
    out.push_back(nullptr);
    return out;
}

// Looks argv[0] up in the PATH that the command will have. posix_spawnp would use the caller's
// PATH.
std::string find_program(const Command& command) {
    const std::string& name = command.argv[0];
    if (name.find('/') != std::string::npos) return name;
    std::string path;
    for (const std::string& variable : command.environment) {
        if (variable.rfind("PATH=", 0) == 0) path = variable.substr(5);
    }
    for (const std::string& directory : split(search_path(path), ":")) {
        const std::string candidate = directory + "/" + name;
        if (is_file(candidate) && access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return "";
}

// Holds a message that the processes below send to the caller through a pipe.
struct WatcherReport {
    enum Kind : int { failed, started, ended, asked } kind;  // for `asked`, see Command::question
    // an errno value, a process id, or a status as from wait4(2)
    int value;
    long peak_kib;  // with `ended`
};

// Holds what these processes read. They share the caller's memory, so all of this is made before
// they start and outlives them.
struct Start {
    const char* program;
    char* const* argv;
    char* const* environment;
    int directory;
    int input;
    int output;
    int errors;
    int reports;
    int read_rule;
    long parent;  // the process that starts the watcher
    bool is_traced;
    void* waiting_stack;
    void* program_stack;
};

using machine::bare;

template <typename T>
LAZYCK_BARE long word(T* pointer) {
    return reinterpret_cast<long>(pointer);
}

LAZYCK_BARE void tell(int pipe, const WatcherReport& report) { bare(SYS_write, pipe, word(&report), sizeof report); }

// Sets every signal to its default action, without the program's handlers, which must not run here.
LAZYCK_BARE void reset_signals() {
    const unsigned long by_default[8] = {};  // the kernel's struct sigaction, which begins with the handler
    for (int signal = 1; signal < NSIG; ++signal) {
        unsigned long old[8] = {};
        bare(SYS_rt_sigaction, signal, 0, word(old), k_kernel_mask_size);
        // A signal that nohup or the like ignores stays ignored, so that the compiler survives a
        // hangup as the caller does.
        const bool may_be_ignored = signal == SIGHUP || signal == SIGINT || signal == SIGQUIT;
        if (may_be_ignored && old[0] == k_ignored) continue;
        bare(SYS_rt_sigaction, signal, word(by_default), 0, k_kernel_mask_size);
    }
}

// In a program with more rights than its caller, makes its effective user and group the real ones.
// gcc asks by access(2), which looks at the real user, where it may put temporary files.
LAZYCK_BARE void become_effective_user() {
    const long user = bare(SYS_geteuid), group = bare(SYS_getegid);
    if (bare(SYS_getgid) != group) bare(SYS_setresgid, group, group, group);
    if (bare(SYS_getuid) != user) bare(SYS_setresuid, user, user, user);
}

// Linux before 5.9 has no close_range.
LAZYCK_BARE void close_from_to(long first, long last) {
    if (bare(k_close_range, first, last, 0) == 0) return;
    for (long fd = first; fd <= last && fd <= k_last_guess; ++fd) bare(SYS_close, fd);
}

// Closes all descriptors but our own. The others belong to the program, whose sockets would stay
// open and whose locks would stay held as long as a copy of their descriptors is open.
LAZYCK_BARE void close_what_is_not_ours(const Start& start) {
    const int ours[] = {start.reports, start.directory, start.input, start.output, start.errors, start.read_rule};
    for (long first = 0; first <= k_last_descriptor;) {
        long kept = k_last_descriptor + 1;  // the next of ours
        for (const int fd : ours) {
            if (fd >= first && fd < kept) kept = fd;
        }
        if (kept > first) close_from_to(first, kept - 1);
        first = kept + 1;
    }
}

// Opens an empty input for a program that is given none, also where there is no /dev/null.
LAZYCK_BARE long open_nothing() {
    const long null = bare(SYS_openat, AT_FDCWD, word("/dev/null"), O_RDONLY | O_CLOEXEC);
    if (null >= 0) return null;
    int ends[2];
    const long status = bare(SYS_pipe2, word(ends), O_CLOEXEC);
    if (status < 0) return status;
    bare(SYS_close, ends[1]);
    return ends[0];
}

// Becomes the program. Signals have their default actions and are blocked.
LAZYCK_BARE int become_program(void* data) {
    const Start& start = *static_cast<const Start*>(data);
    // The descriptors are first copied to numbers above the standard ones: the host may have closed
    // its standard descriptors, so these may have their numbers.
    const int reports = static_cast<int>(bare(SYS_fcntl, start.reports, F_DUPFD_CLOEXEC, 3));
    const long from = start.input >= 0 ? start.input : open_nothing();
    const long in = from < 0 ? from : bare(SYS_fcntl, from, F_DUPFD_CLOEXEC, 3),
               out = bare(SYS_fcntl, start.output, F_DUPFD_CLOEXEC, 3),
               err = start.errors < 0 ? out : bare(SYS_fcntl, start.errors, F_DUPFD_CLOEXEC, 3);
    const long rule = start.read_rule < 0 ? start.read_rule : bare(SYS_fcntl, start.read_rule, F_DUPFD_CLOEXEC, 3);
    const long where = start.directory < 0 ? start.directory : bare(SYS_fcntl, start.directory, F_DUPFD_CLOEXEC, 3);
    long status = in < 0 ? in : bare(SYS_dup3, in, 0);
    if (status >= 0) status = out < 0 ? out : bare(SYS_dup3, out, 1);
    if (status >= 0) status = err < 0 ? err : bare(SYS_dup3, err, 2);
    if (status >= 0 && start.directory >= 0) status = where < 0 ? where : bare(SYS_fchdir, where);
    become_effective_user();
    if (status >= 0) status = bare(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    if (status >= 0) {
        const unsigned long nothing = 0;
        bare(SYS_rt_sigprocmask, SIG_SETMASK, word(&nothing), 0, k_kernel_mask_size);
        // The kernel limits only a program that can gain no rights by running a setuid one. Where
        // it refuses to limit this one, too, nothing is limited, as on a kernel without Landlock.
        if (rule >= 0 && bare(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) bare(k_landlock_restrict_self, rule, 0);
        status = bare(SYS_execve, word(start.program), word(start.argv), word(start.environment));
    }
    tell(reports, {WatcherReport::failed, static_cast<int>(-status), 0});
    bare(SYS_exit_group, 127);
    return 127;
}

LAZYCK_BARE int wait_for_program(void* data) {
    const Start& start = *static_cast<const Start*>(data);
    // When the caller ends, even by SIGKILL, the kernel ends the watcher, and then the program:
    // nothing would use its output.
    bare(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    if (bare(SYS_getppid) == start.parent) {
        const int pid = __clone(become_program, start.program_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, data);
        if (pid > 0) {
            tell(start.reports, {WatcherReport::started, pid, 0});
            int status = 0;
            rusage used = {};
            long ended;
            do {
                ended = bare(SYS_wait4, pid, word(&status), 0, word(&used));
            } while (ended == -EINTR);
            tell(start.reports, {WatcherReport::ended, status, used.ru_maxrss});
        } else {
            tell(start.reports, {WatcherReport::failed, EAGAIN, 0});
        }
    }
    bare(SYS_exit_group, 0);
    return 0;
}

// Runs as the watcher's first thread. It starts a second thread that waits, and ends itself: the
// kernel shows no memory for a process whose first thread is gone. Otherwise the caller's memory,
// which the watcher shares, would be counted twice by tools that add up a job's processes.
LAZYCK_BARE int watch(void* data) {
    const Start& start = *static_cast<const Start*>(data);
    reset_signals();
    close_what_is_not_ours(start);
    constexpr int k_thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
    // The first thread itself waits under an emulator, which supports only clones with all flags of
    // a thread, and under a debugger that follows children, which would lose track.
    if (start.is_traced || __clone(wait_for_program, start.waiting_stack, k_thread, data) < 0) wait_for_program(data);
    bare(SYS_exit, 0);
    return 0;
}

// A stack for a process that shares the caller's memory.
struct Stack {
    std::vector<char> bytes = std::vector<char>(k_stack_size);
    void* top() { return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&bytes.back() + 1) & ~15UL); }
};

// Runs a program, with a watcher process that waits for it. The program is not a plain child,
// because the kernel reaps plain children if the caller ignores SIGCHLD, and a handler that waits
// for any child takes their exit status. The watcher shares the caller's memory, so that starting
// it costs no copy of a large process. It sends no signal at its end, so only this object waits for
// it. The program is the watcher's child.
class Running {
 public:
    Running(const Command& command, const std::string& program)
        : m_argv(pointers(command.argv)), m_environment(pointers(command.environment)) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            m_error = errno;
            return;
        }
        m_reports = UniqueFd(ends[0]);
        // The watcher does not share the table of descriptors, so its own end stays open. Ours
        // would keep the pipe open after the watcher's end.
        const UniqueFd own_end(ends[1]);
        m_start = {program.c_str(),      m_argv.data(),  m_environment.data(), command.directory,
                   command.input,        command.output, command.errors,       ends[1],
                   command.read_rule,    getpid(),       is_traced(),          m_waiting_stack.top(),
                   m_program_stack.top()};
        const BlockedSignals blocked;
        const ChildrenHere here;
        if (!here.is_so()) {
            m_error = ECHILD;
            return;
        }
        m_watcher = __clone(watch, m_watcher_stack.top(), CLONE_VM, &m_start);
        // Emulators support only threads and full copies.
        if (m_watcher < 0 && errno == EINVAL) m_watcher = __clone(watch, m_watcher_stack.top(), SIGCHLD, &m_start);
        m_error = m_watcher < 0 ? errno : 0;
    }
    // Waits for the watcher, which uses members of this object until it ends.
    ~Running() {
        while (m_watcher > 0 && waitpid(m_watcher, nullptr, __WALL) < 0 && errno == EINTR) {
        }
    }

    int error() const { return m_error; }

    // Waits at most `seconds` for the next report, and returns nothing when the time is up. The
    // report is `ended` with value -1 if the watcher ended without a report. See Command for
    // `question`.
    std::optional<WatcherReport> next(double seconds, int question) {
        pollfd wanted[] = {{m_reports.get(), POLLIN, 0}, {question, POLLIN, 0}};
        const int timeout = static_cast<int>(std::clamp(seconds * 1000 + 1, 1.0, 30000.0));
        if (poll(wanted, 2, timeout) <= 0) return std::nullopt;
        if (wanted[0].revents == 0) return WatcherReport{WatcherReport::asked, 0, 0};
        WatcherReport report;
        const ssize_t size = read(m_reports.get(), &report, sizeof report);
        if (size < 0 && errno == EINTR) return std::nullopt;
        return size == sizeof report ? report : WatcherReport{WatcherReport::ended, k_no_status, 0};
    }

 private:
    std::vector<char*> m_argv, m_environment;
    UniqueFd m_reports;
    Stack m_watcher_stack, m_waiting_stack, m_program_stack;
    Start m_start = {};
    pid_t m_watcher = -1;
    int m_error = 0;
};

Outcome not_started(const std::string& program, int error) {
    const std::string reason =
        program.find('/') == std::string::npos ? "not found in PATH"
        : error == ECHILD
            ? "this thread's children begin in another PID namespace (unshare(2)), and must not be lazyck's"
            : system_text(error);
    const bool is_missing = error == ENOENT || error == ENOTDIR || error == EACCES || error == ENOEXEC;
    return {Ending::failed, "cannot start '" + program + "': " + reason, false, is_missing};
}

Outcome from_report(const WatcherReport& report) {
    if (report.value == k_no_status) return {Ending::unknown, "unknown exit status"};
    Outcome outcome{Ending::failed, ""};
    outcome.peak_rss_kib = report.peak_kib;
    if (WIFEXITED(report.value)) {
        if (WEXITSTATUS(report.value) == 0) outcome.ending = Ending::succeeded;
        outcome.exit_status = WEXITSTATUS(report.value);
        outcome.text = "exit status " + std::to_string(outcome.exit_status);
    } else {
        outcome.signal = WTERMSIG(report.value);
        outcome.text = "killed by " + signal_text(outcome.signal);
    }
    return outcome;
}

Outcome wait_for(Running& running, const std::string& program, const Command& command) {
    WaitNotice notice;
    pid_t pid = 0;
    bool has_timed_out = false;
    int question = command.question;
    while (true) {
        double patience = notice.left();
        if (!has_timed_out && command.timeout_seconds > 0) {
            patience = std::min(patience, command.timeout_seconds - notice.waited());
            if (pid > 0 && patience <= 0) {
                has_timed_out = true;
                kill_tree(pid);
            }
        }
        if (const auto report = running.next(patience, question)) {
            if (report->kind == WatcherReport::asked) {
                if (!command.asked()) question = -1;
                continue;
            }
            if (report->kind == WatcherReport::failed) return not_started(program, report->value);
            if (report->kind == WatcherReport::ended) {
                Outcome outcome = from_report(*report);
                outcome.has_timed_out = has_timed_out;
                return outcome;
            }
            pid = report->value;
            command.started(pid);
        } else if (notice.is_due()) {
            command.beat(notice.waited());
        }
    }
}

}  // namespace

ChildrenHere::ChildrenHere() {
    constexpr char k_theirs[] = "/proc/thread-self/ns/pid_for_children";
    struct stat here, there;
    const UniqueFd own = open_file("/proc/thread-self/ns/pid", O_RDONLY);
    if (!own || fstat(own.get(), &here) != 0 || lstat(k_theirs, &there) != 0) return;  // Linux before 4.12
    m_theirs = open_file(k_theirs, O_RDONLY);
    if (m_theirs ? fstat(m_theirs.get(), &there) != 0 || here.st_ino == there.st_ino : errno != ENOENT) return;
    m_is_so = m_is_moved = setns(own.get(), CLONE_NEWPID) == 0;
}

// There is no way to a namespace in which no process has begun, and it is as good as a new one.
ChildrenHere::~ChildrenHere() {
    if (!m_is_moved || (m_theirs ? setns(m_theirs.get(), CLONE_NEWPID) : unshare(CLONE_NEWPID)) == 0) return;
    log_message(Level::warn, "cannot move this thread's children back to their PID namespace: " + system_text(errno));
}

bool take_own_descriptors() {
    if (__tsan_acquire != nullptr) return false;  // the thread sanitizer takes equal numbers for one descriptor
    constexpr long k_first = STDERR_FILENO + 1;
    if (bare(k_close_range, k_first, k_last_descriptor, k_close_range_unshare) == 0) return true;
    if (unshare(CLONE_FILES) != 0) return false;
    close_from_to(k_first, k_last_descriptor);
    return true;
}

bool adopts_orphans() {
    int is_subreaper = 0;
    return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper, 0, 0, 0) == 0 && is_subreaper != 0);
}

void end_orphan(pid_t pid) {
    if (pid <= 0 || !adopts_orphans()) return;
    start_thread([pid] {
        // Only this process is awaited: all others are the program's to wait for.
        while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
        }
    });
}

Outcome run_command(const Command& command) {
    const std::string program = find_program(command);
    if (program.empty()) return not_started(command.argv[0], ENOENT);
    Running running(command, program);
    if (running.error() != 0) return not_started(program, running.error());
    return wait_for(running, program, command);
}

}  // namespace lazyck::rt
