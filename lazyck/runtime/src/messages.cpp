#include "messages.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <set>

#include "config.h"
#include "failure.h"
#include "files.h"
#include "lazyck_abi.h"
#include "text.h"

namespace lazyck::rt {

namespace {

constexpr std::array<const char*, 4> k_names = {"error", "warn", "info", "debug"};
std::atomic<bool> g_silent{false};

struct Log {
    Level last = Level::info;
    bool is_json = false;
    std::string file;     // "": stderr
    std::string problem;  // with the variables that say so
};

Log read_log() {
    Log log;
    const std::string level = environment(LAZYCK_ENV_LOG), format = environment(LAZYCK_ENV_LOG_FORMAT);
    bool is_known = level.empty();
    for (std::size_t i = 0; i < k_names.size(); ++i) {
        if (level != k_names[i]) continue;
        log.last = static_cast<Level>(i);
        is_known = true;
    }
    if (!is_known) log.problem = LAZYCK_ENV_LOG "=" + shell_quote(level) + ": must be error, warn, info or debug";
    log.is_json = format == "json";
    if (!format.empty() && format != "json" && format != "text") {
        log.problem = LAZYCK_ENV_LOG_FORMAT "=" + shell_quote(format) + ": must be text or json";
    }
    log.file = environment(LAZYCK_ENV_LOG_FILE);
    if (!log.file.empty()) log.file = absolute(log.file);
    return log;
}

// On the heap and kept: threads may speak to the very end.
const Log& log_settings() {
    static const Log* const s_log = new Log(read_log());
    return *s_log;
}

// Opened for each line: descriptors that a library keeps for itself get closed by programs that close all, and the file
// may be moved away by whoever rotates logs.
UniqueFd open_log(const std::string& path) { return open_file(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0644); }

std::string as_json(Level level, const std::string& rank, const std::string& line) {
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    char time[48];
    std::snprintf(time, sizeof time, "%lld.%03ld", static_cast<long long>(now.tv_sec), now.tv_nsec / 1000000);
    return std::string("{\"time\": ") + time + ", \"level\": \"" + k_names.at(static_cast<std::size_t>(level)) +
           "\", \"pid\": " + std::to_string(getpid()) +
           (rank.empty() ? "" : ", \"rank\": " + rank.substr(rank.find(' ') + 1)) +
           ", \"message\": " + json_string(line) + "}\n";
}

}  // namespace

bool is_said(Level level) { return !g_silent.load(std::memory_order_relaxed) && level <= log_settings().last; }

void say(Level level, const std::string& line) {
    if (!is_said(level)) return;
    const Log& log = log_settings();
    const std::string rank = rank_name();
    const std::string text =
        log.is_json
            ? as_json(level, rank, line)
            : (rank.empty() ? "[lazyck] " : "[lazyck] [" + rank + "] ") +
                  (level <= Level::warn ? std::string(k_names.at(static_cast<std::size_t>(level))) + ": " : "") +
                  visible(line) + "\n";
    const UniqueFd file = log.file.empty() ? UniqueFd() : open_log(log.file);
    if (file && write_all(file.get(), text)) return;
    write_all(2, text);
}

void say_once(const std::string& what, const std::string& line) {
    static std::mutex* const s_mutex = new std::mutex;
    static auto* const s_said = new std::set<std::string>;
    {
        const std::lock_guard<std::mutex> guard(*s_mutex);
        if (!s_said->insert(what).second) return;
    }
    say(Level::warn, line.substr(line.rfind("lazyck: ", 0) == 0 ? 8 : 0));
}

void silence() { g_silent.store(true, std::memory_order_relaxed); }

void check_log_settings() {
    const Log& log = log_settings();
    if (!log.problem.empty()) fail("lazyck: environment variable " + log.problem);
    if (!log.file.empty() && !open_log(log.file)) {
        const int error = errno;
        fail("lazyck: environment variable " LAZYCK_ENV_LOG_FILE "=" + shell_quote(log.file) +
             ": cannot be written: " + system_text(error));
    }
}

}  // namespace lazyck::rt
