#include "platform/messages.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/failure.h"
#include "base/text.h"
#include "lazyck_abi.h"
#include "machine/machine.h"
#include "platform/environment.h"
#include "platform/files.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr std::array<const char*, 4> k_names = {"error", "warn", "info", "debug"};
constexpr std::array<const char*, 4> k_unnamed_events = {"failure", "warning", "note", "note"};
constexpr int k_output = 1, k_error_stream = 2;
machine::Flag g_silent{false}, g_has_warned_of_file{false}, g_constructors_run{false};
Lasting<std::set<std::string>> g_said;

using Identity = std::optional<std::pair<std::uint64_t, std::uint64_t>>;  // of an open file: device and inode

Identity identity_of(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? Identity({st.st_dev, st.st_ino}) : std::nullopt;
}

Identity g_error_stream_at_load;

// Runs before the constructors of the program, which may open files. It is the only code of the
// runtime that runs at load (one system call). The first line is too late for it, since `2>file`
// and a file that the program opened in its place look alike.
__attribute__((constructor(101))) void note_error_stream() {
    g_error_stream_at_load = identity_of(k_error_stream);
    g_constructors_run = true;
}

// Tells a connection to a log service, which is local, from connections of the program's own.
bool is_local(int socket) {
    sockaddr address = {};
    socklen_t size = sizeof address;
    return getsockname(socket, &address, &size) == 0 && address.sa_family == AF_UNIX;
}

// Returns whether descriptor 2 still is the standard error stream. When a program closes this, the
// next file or connection that it opens for itself gets the number again, and our lines must not
// end up in there. Standard error comes through an exec, so a descriptor that closes at an exec is
// not it. A terminal, a pipe or a log that is appended to is not what a program opens for its data.
// A file that was descriptor 2 when the library was loaded is what the program was started with.
bool is_error_stream() {
    struct stat st;
    const int flags = fcntl(k_error_stream, F_GETFL);
    if (fstat(k_error_stream, &st) != 0 || flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return false;
    if ((fcntl(k_error_stream, F_GETFD) & FD_CLOEXEC) != 0) return false;
    const Identity now({st.st_dev, st.st_ino});
    switch (st.st_mode & S_IFMT) {
        case S_IFCHR:
        case S_IFIFO:
            return true;
        case S_IFSOCK:
            return is_local(k_error_stream);
        case S_IFREG:
            return now == g_error_stream_at_load || (flags & O_APPEND) != 0 || now == identity_of(k_output);
        default:
            return false;
    }
}

struct Log {
    Level last = Level::info;
    bool is_json = false;
    std::string file;     // empty: stderr
    std::string problem;  // an error text, with the variable and where it is set
};

// Returns the descriptor that a path stands for by its number, or -1. Opening such a path, which is
// a link, would give another open file.
int descriptor_of(const std::string& path) {
    for (const char* name : {"/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"}) {
        if (path == name) return k_error_stream;
    }
    for (const char* name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
        if (path == name) return k_output;
    }
    return -1;
}

Log read_log() {
    Log log;
    const std::string level = environment(LAZYCK_ENV_LOG), format = environment(LAZYCK_ENV_LOG_FORMAT);
    const auto* const name = std::find(k_names.begin(), k_names.end(), level);
    if (name != k_names.end())
        log.last = static_cast<Level>(name - k_names.begin());
    else if (!level.empty())
        log.problem = origin_of(LAZYCK_ENV_LOG) + LAZYCK_ENV_LOG "=" + shell_quote(level) +
                      ": must be error, warn, info or debug";
    log.is_json = format == "json";
    if (!format.empty() && format != "json" && format != "text") {
        log.problem = origin_of(LAZYCK_ENV_LOG_FORMAT) + LAZYCK_ENV_LOG_FORMAT "=" + shell_quote(format) +
                      ": must be text or json";
    }
    log.file = environment(LAZYCK_ENV_LOG_FILE);
    if (descriptor_of(log.file) == k_error_stream) log.file.clear();
    if (!log.file.empty()) log.file = absolute(log.file);
    return log;
}

Lasting<Log> g_log;

const Log& log_settings() { return g_log.get(read_log); }

// Opens the file for each line. A program that closes all descriptors also closes those that a
// library keeps for itself, and log rotation may move the file away.
bool write_to_file(const std::string& path, const std::string& text) {
    if (descriptor_of(path) == k_output) return write_all(k_output, text);
    const UniqueFd file = open_file(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0644);
    return file && write_all(file.get(), text);
}

std::string as_json(Level level, const std::string& line, const Fields& fields) {
    JsonObject object;
    object.add("time", decimal(now_seconds(), 3));
    object.add_text("level", k_names.at(static_cast<std::size_t>(level)));
    const bool is_named = fields.event[0] != '\0';
    object.add_text("event", is_named ? fields.event : k_unnamed_events.at(static_cast<std::size_t>(level)));
    object.add("pid", std::to_string(getpid()));
    object.add("rank", rank_number());
    object.add_text("library", fields.subject.library);
    object.add_text("blob", fields.subject.blob);
    object.add_text("kernel", fields.subject.kernel);
    object.add_text("arch", fields.subject.arch);
    if (fields.seconds >= 0) object.add("seconds", decimal(fields.seconds, 6));
    object.add_text("outcome", fields.outcome);
    object.add("message", json_string(line));
    return object.text() + "\n";
}

std::string formatted(const Log& log, Level level, const std::string& line, const Fields& fields) {
    if (log.is_json) return as_json(level, line, fields);
    const std::string rank = rank_name();
    return (rank.empty() ? "[lazyck] " : "[lazyck] [" + rank + "] ") +
           (level <= Level::warn ? std::string(k_names.at(static_cast<std::size_t>(level))) + ": " : "") +
           visible(line) + "\n";
}

}  // namespace

bool constructors_run() { return g_constructors_run; }

bool is_said(Level level) { return !g_silent.load(std::memory_order_relaxed) && level <= log_settings().last; }

void write_to_error_stream(const std::string& text) {
    if (is_error_stream()) write_all(k_error_stream, text);
}

void log_message(Level level, const std::string& line, const Fields& fields) {
    if (!is_said(level)) return;
    const Log& log = log_settings();
    const std::string text = formatted(log, level, line, fields);
    if (!log.file.empty() && write_to_file(log.file, text)) return;
    const int error = errno;
    if (!log.file.empty() && !g_has_warned_of_file.exchange(true)) {
        write_to_error_stream(formatted(log, Level::warn,
                                        "cannot write to " LAZYCK_ENV_LOG_FILE "=" + shell_quote(log.file) + ": " +
                                            system_text(error) + "; lines go to stderr",
                                        {}));
    }
    write_to_error_stream(text);
}

void log_once(const std::string& what, const std::string& line, const Fields& fields) {
    auto& said = g_said.get([] { return std::set<std::string>(); });
    {
        const std::lock_guard<std::mutex> guard(lock_of(Shared::warnings_said));
        if (!said.insert(what).second) return;
    }
    log_message(Level::warn, line.substr(line.rfind("lazyck: ", 0) == 0 ? 8 : 0), fields);
}

void silence() { g_silent.store(true, std::memory_order_relaxed); }

void check_log_settings() {
    const Log& log = log_settings();
    if (!log.problem.empty()) fail("lazyck: " + log.problem);
}

}  // namespace lazyck::rt
