#include "process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "files.h"

namespace lazyck::rt {

namespace {

using Clock = std::chrono::steady_clock;
using SetCwd = int (*)(posix_spawn_file_actions_t*, const char*);

constexpr std::chrono::seconds k_beat_interval{30};
constexpr int k_poll_ms = 20;  // without pidfd_open (Linux before 5.3)

// By name at run time: a library built on a new system then still loads on one whose glibc lacks the function.
SetCwd set_cwd_function() {
    static std::atomic<SetCwd> s_function{nullptr};
    static std::atomic<bool> s_is_known{false};
    if (!s_is_known.load(std::memory_order_acquire)) {
        s_function.store(reinterpret_cast<SetCwd>(dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addchdir_np")));
        s_is_known.store(true, std::memory_order_release);
    }
    return s_function.load();
}

class FileActions {
 public:
    FileActions() { posix_spawn_file_actions_init(&m_actions); }
    FileActions(const FileActions&) = delete;
    FileActions& operator=(const FileActions&) = delete;
    ~FileActions() { posix_spawn_file_actions_destroy(&m_actions); }
    posix_spawn_file_actions_t* get() { return &m_actions; }

 private:
    posix_spawn_file_actions_t m_actions;
};

class Attributes {
 public:
    Attributes() {
        posix_spawnattr_init(&m_attributes);
        sigset_t none, all;
        sigemptyset(&none);
        sigfillset(&all);
        posix_spawnattr_setsigmask(&m_attributes, &none);
        posix_spawnattr_setsigdefault(&m_attributes, &all);
        posix_spawnattr_setpgroup(&m_attributes, 0);
        posix_spawnattr_setflags(&m_attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    }
    Attributes(const Attributes&) = delete;
    Attributes& operator=(const Attributes&) = delete;
    ~Attributes() { posix_spawnattr_destroy(&m_attributes); }
    posix_spawnattr_t* get() { return &m_attributes; }

 private:
    posix_spawnattr_t m_attributes;
};

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

Outcome from_wait(const siginfo_t& info) {
    if (info.si_code == CLD_EXITED) {
        const Ending ending = info.si_status == 0 ? Ending::succeeded : Ending::failed;
        Outcome exited{ending, "exit status " + std::to_string(info.si_status)};
        exited.exit_status = info.si_status;
        return exited;
    }
    const std::string text = "killed by signal " + std::to_string(info.si_status) + " (" + strsignal(info.si_status);
    return {Ending::failed, text + ")", true, info.si_status};
}

// Looks whether the process has ended; nothing if not.
std::optional<Outcome> poll_end(pid_t pid) {
    siginfo_t info = {};
    int status;
    do {
        status = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    } while (status != 0 && errno == EINTR);
    if (status == 0 && info.si_pid == 0) return std::nullopt;
    if (status == 0) return from_wait(info);
    // SIGCHLD ignored (the kernel reaps) or a handler of the program was first. Until an unreaped child ends, both
    // calls below find it.
    if (kill(pid, 0) == 0) return std::nullopt;
    return Outcome{Ending::unknown, "unknown exit status"};
}

Outcome wait_for(pid_t pid, const std::function<void(double)>& beat) {
#ifdef SYS_pidfd_open
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
#else
    const UniqueFd process;
#endif
    const Clock::time_point start = Clock::now();
    Clock::time_point next_beat = start + k_beat_interval;
    while (true) {
        if (const auto outcome = poll_end(pid)) return *outcome;
        const auto now = Clock::now();
        if (now >= next_beat) {
            beat(std::chrono::duration<double>(now - start).count());
            next_beat += k_beat_interval;
        }
        if (process) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next_beat - now).count();
            pollfd wanted = {process.get(), POLLIN, 0};
            // Readable at the end, whoever reaps; a moment later there is nothing left to wait for.
            if (poll(&wanted, 1, static_cast<int>(std::clamp<long long>(left, 1, 30000))) > 0) {
                if (const auto outcome = poll_end(pid)) return *outcome;
                return {Ending::unknown, "unknown exit status"};
            }
        } else {
            poll(nullptr, 0, k_poll_ms);
        }
    }
}

}  // namespace

bool can_set_cwd() { return set_cwd_function() != nullptr; }

Outcome run_command(const Command& command, const std::function<void(double)>& beat) {
    const std::string program = find_program(command);
    if (program.empty()) {
        return {Ending::failed, "cannot start '" + command.argv[0] + "': not found in PATH", false};
    }
    FileActions actions;
    posix_spawn_file_actions_addopen(actions.get(), 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(actions.get(), command.output, 1);
    posix_spawn_file_actions_adddup2(actions.get(), command.output, 2);
    if (const SetCwd set_cwd = set_cwd_function()) set_cwd(actions.get(), command.cwd.c_str());
    Attributes attributes;
    pid_t pid = 0;
    const int error = posix_spawn(&pid, program.c_str(), actions.get(), attributes.get(), pointers(command.argv).data(),
                                  pointers(command.environment).data());
    if (error != 0) return {Ending::failed, "cannot start '" + program + "': " + system_text(error), false};
    return wait_for(pid, beat);
}

}  // namespace lazyck::rt
