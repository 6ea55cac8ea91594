// The file is a JSON array, with one event a line:
//     [
//     {"ph": "M", "name": "process_name", ...},
//     {"ph": "X", "name": <blob>, "cat": "compile", "wait" or "load", ...}
//     ]
// A process that appends writes over the closing bracket and writes the bracket again in the same
// write, under the file's lock. So the file is whole at any time, whichever process is killed.
// There is one exception: a process that is killed within the write of a line that crosses a page
// leaves half of it. The next process that appends cuts this half off.
#include "record/trace.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/failure.h"
#include "base/numbers.h"
#include "base/text.h"
#include "platform/environment.h"
#include "platform/files.h"
#include "platform/messages.h"
#include "platform/threads.h"
#include "record/events.h"

namespace lazyck::rt {

namespace {

constexpr std::string_view k_end_of_array = "\n]\n";
constexpr std::size_t k_longest_end = 1 << 20;  // bytes in which the last whole line of a damaged file is looked for
constexpr std::chrono::milliseconds k_wait_for_trace{2000}, k_pause_for_trace{1};

// Locks an open file. Waits at most `patience`: others hold the lock for a write, or as long as they
// read. Returns false if another process still holds it. Where the file system has no locks, the
// result is true.
bool lock_file(int fd, std::chrono::milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return true;
        if (std::chrono::steady_clock::now() >= end) return false;
        std::this_thread::sleep_for(k_pause_for_trace);
    }
    return true;
}

bool write_at(int fd, std::string_view data, std::size_t at) {
    return lseek(fd, static_cast<off_t>(at), SEEK_SET) >= 0 && write_all(fd, data);
}

// Returns where the next line begins in a file of this size: after its last whole line, or after
// the opening bracket. The result is npos if there is no such place.
std::size_t end_of_lines(int fd, std::size_t size) {
    const auto last = [&](std::size_t most) {
        const std::size_t start = size - std::min(size, most);
        return std::make_pair(start, read_text(fd, start, most));
    };
    if (last(k_end_of_array.size()).second == k_end_of_array) return size - k_end_of_array.size();
    const auto [start, text] = last(k_longest_end);
    const std::size_t newline = text.rfind('\n');
    if (newline == std::string::npos) return size == 1 ? size : std::string::npos;
    return start + text.find_last_not_of("\n,]", newline) + 1;
}

// Appends `objects`, which are lines with commas between them. Returns what is wrong, or an empty
// string.
std::string append_to_array(int fd, const std::string& objects) {
    struct stat st;
    if (fstat(fd, &st) != 0) return system_text(errno);
    const auto size = static_cast<std::size_t>(st.st_size);
    char first = '[';
    if (size > 0 && pread(fd, &first, 1, 0) != 1) return system_text(errno);
    const std::size_t at = size > 0 ? end_of_lines(fd, size) : 0;
    if (first != '[' || at == std::string::npos) return "it holds something other than a trace; remove it";
    const std::string text = (at == 0 ? "[\n" : at == 1 ? "\n" : ",\n") + objects + std::string(k_end_of_array);
    const bool is_written = write_at(fd, text, at);
    const int error = errno;
    // The closing bracket fits even when there is no room for more.
    if (!is_written && at > 0) write_at(fd, k_end_of_array, at);
    const std::size_t end = at + (is_written ? text.size() : at > 0 ? k_end_of_array.size() : 0);
    if ((!is_written || end < size) && ftruncate(fd, static_cast<off_t>(end)) != 0) return system_text(errno);
    return is_written ? "" : system_text(error);
}

std::string append_to_trace(const std::string& path, const std::string& objects, std::chrono::milliseconds patience) {
    const UniqueFd fd = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0644);
    struct stat st;
    if (!fd || fstat(fd.get(), &st) != 0) return system_text(errno);
    if (!S_ISREG(st.st_mode)) return "it is not a file";
    if (!lock_file(fd.get(), patience)) return "another process holds its lock";
    const std::string problem = append_to_array(fd.get(), objects);
    flock(fd.get(), LOCK_UN);  // a child made by fork shares the descriptor
    return problem;
}

JsonObject trace_event(const char* phase, const std::string& name) {
    JsonObject event;
    event.add("ph", json_string(phase));
    event.add("name", json_string(name));
    event.add("pid", std::to_string(getpid()));
    event.add("tid", std::to_string(thread_number()));
    return event;
}

std::string naming_line() {
    const std::string rank = rank_number();
    JsonObject args;
    args.add_text("name", (rank.empty() ? "" : "rank " + rank + ", ") + "process " + std::to_string(getpid()) + " on " +
                              host_name());
    JsonObject line = trace_event("M", "process_name");
    line.add("args", args.text());
    return line.text();
}

std::string trace_line(const Event& event) {
    JsonObject args;
    args.add_text("library", event.library);
    args.add_text("arch", event.arch);
    args.add_text("what", event.what);
    args.add("failed", event.has_failed ? "true" : "false");
    if (event.peak_kib > 0) args.add("peak_kib", std::to_string(event.peak_kib));
    if (event.size > 0) args.add("size", std::to_string(event.size));
    JsonObject line = trace_event("X", event.blob);
    line.add_text("cat", event.kind);
    line.add("ts", decimal(1e6 * event.start, 0));
    line.add("dur", decimal(1e6 * event.seconds, 0));
    line.add("args", args.text());
    return line.text();
}

}  // namespace

void Trace::add(const Event& event) {
    if (m_path.empty()) return;
    const bool is_named = m_is_process_named.exchange(true);
    const std::string lines = (is_named ? "" : naming_line() + ",\n") + trace_line(event);
    // Only the first wait for a stopped process is long.
    const auto patience = m_has_warned ? k_pause_for_trace : k_wait_for_trace;
    const std::string problem = append_to_trace(m_path, lines, patience);
    if (problem.empty()) return;
    if (!is_named) m_is_process_named = false;
    if (!m_has_warned.exchange(true)) say(Level::warn, "cannot write the trace '" + m_path + "': " + problem);
}

}  // namespace lazyck::rt
