#include "messages.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <mutex>
#include <set>

#include "environment.h"
#include "error_stream.h"
#include "failure.h"
#include "files.h"
#include "global_locks.h"
#include "lasting.h"
#include "lazyck_abi.h"
#include "numbers.h"
#include "text.h"

namespace lazyck::rt {

namespace {

constexpr std::array<const char*, 4> k_names = {"error", "warn", "info", "debug"};
std::atomic<bool> g_silent{false};

struct Log {
    Level last = Level::info;
    bool is_json = false;
    std::string file;     // "": stderr
    std::string problem;  // with the variable that says so, and where that is set
};

// The descriptor that a path names by its number, or -1. Opened by its path, as a link, it would be another one.
int descriptor_of(const std::string& path) {
    for (const char* name : {"/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"}) {
        if (path == name) return 2;
    }
    for (const char* name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
        if (path == name) return 1;
    }
    return -1;
}

Log read_log() {
    Log log;
    const std::string level = environment(LAZYCK_ENV_LOG), format = environment(LAZYCK_ENV_LOG_FORMAT);
    bool is_known = level.empty();
    for (std::size_t i = 0; i < k_names.size(); ++i) {
        if (level != k_names[i]) continue;
        log.last = static_cast<Level>(i);
        is_known = true;
    }
    if (!is_known)
        log.problem = origin_of(LAZYCK_ENV_LOG) + LAZYCK_ENV_LOG "=" + shell_quote(level) +
                      ": must be error, warn, info or debug";
    log.is_json = format == "json";
    if (!format.empty() && format != "json" && format != "text") {
        log.problem = origin_of(LAZYCK_ENV_LOG_FORMAT) + LAZYCK_ENV_LOG_FORMAT "=" + shell_quote(format) +
                      ": must be text or json";
    }
    log.file = environment(LAZYCK_ENV_LOG_FILE);
    if (descriptor_of(log.file) == 2) log.file.clear();
    if (!log.file.empty()) log.file = absolute(log.file);
    return log;
}

Lasting<Log> g_log;

const Log& log_settings() { return g_log.get(read_log); }

// Opened for each line: descriptors that a library keeps for itself get closed by programs that close all, and the file
// may be moved away by whoever rotates logs.
bool write_to_file(const std::string& path, const std::string& text) {
    if (descriptor_of(path) == 1) return write_without_signal(1, text);
    const UniqueFd file = open_file(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0644);
    return file && write_without_signal(file.get(), text);
}

std::string as_json(Level level, const std::string& rank, const std::string& line) {
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
    return "{\"time\": " + decimal(seconds, 3) + ", \"level\": \"" + k_names.at(static_cast<std::size_t>(level)) +
           "\", \"pid\": " + std::to_string(getpid()) +
           (rank.empty() ? "" : ", \"rank\": " + rank.substr(rank.find(' ') + 1)) +
           ", \"message\": " + json_string(line) + "}\n";
}

}  // namespace

bool is_said(Level level) { return !g_silent.load(std::memory_order_relaxed) && level <= log_settings().last; }

namespace {

std::string formatted(const Log& log, Level level, const std::string& line) {
    const std::string rank = rank_name();
    if (log.is_json) return as_json(level, rank, line);
    return (rank.empty() ? "[lazyck] " : "[lazyck] [" + rank + "] ") +
           (level <= Level::warn ? std::string(k_names.at(static_cast<std::size_t>(level))) + ": " : "") +
           visible(line) + "\n";
}

std::atomic<bool> g_has_warned_of_file{false};

}  // namespace

void say(Level level, const std::string& line) {
    if (!is_said(level)) return;
    const Log& log = log_settings();
    const std::string text = formatted(log, level, line);
    if (!log.file.empty() && write_to_file(log.file, text)) return;
    const int error = errno;
    if (!log.file.empty() && !g_has_warned_of_file.exchange(true)) {
        write_to_error_stream(formatted(log, Level::warn,
                                        "cannot write to " LAZYCK_ENV_LOG_FILE "=" + shell_quote(log.file) + ": " +
                                            system_text(error) + "; lines go to stderr"));
    }
    write_to_error_stream(text);
}

namespace {

Lasting<std::set<std::string>> g_said;

}  // namespace

void say_once(const std::string& what, const std::string& line) {
    auto& said = g_said.get([] { return std::set<std::string>(); });
    {
        const std::lock_guard<std::mutex> guard(lock_of(Shared::warnings_said));
        if (!said.insert(what).second) return;
    }
    say(Level::warn, line.substr(line.rfind("lazyck: ", 0) == 0 ? 8 : 0));
}

void silence() { g_silent.store(true, std::memory_order_relaxed); }

void check_log_settings() {
    const Log& log = log_settings();
    if (!log.problem.empty()) fail("lazyck: " + log.problem);
}

}  // namespace lazyck::rt
