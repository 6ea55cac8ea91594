// The history is <cache>/.history/<host>, one file for each host, since appends of two hosts can
// mix on a network file system. It has one JSON object on each line, appended in one write:
//     {"t": start, "s": seconds, "kind": ..., "library": ..., "blob": ..., "arch": ..., "pid": ...,
//      "tid": ..., "host": ..., "rank": ..., "failed": true, "what": ..., "kib": ..., "size": ...}
// Members without a value are left out. Compiles and waits are written at once, loads together,
// because a load must cost next to nothing. A file that has grown large is moved to "<host>.1".
#include "history/events.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/failure.h"
#include "base/text.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/files.h"
#include "platform/messages.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_most_pending = 64;
constexpr std::string_view k_end_of_array = "\n]\n";
constexpr std::size_t k_longest_end = 1 << 20;  // bytes in which the last whole line of a damaged file is looked for
constexpr std::chrono::milliseconds k_wait_for_trace{2000}, k_pause_for_trace{1};
constexpr std::size_t k_most_messages = 10'000;
constexpr off_t k_largest_history = 8 << 20;
constexpr double k_longest_telling = 10, k_longest_last_telling = 1;  // seconds
constexpr unsigned k_depth_of_history = 2;                            // including the root

std::string history_line(const Event& event, long thread) {
    JsonObject line;
    line.add(LAZYCK_KEY_T, decimal(event.start, 3));
    line.add(LAZYCK_KEY_S, decimal(event.seconds, 6));
    line.add_text(LAZYCK_KEY_KIND, event.kind);
    line.add_text(LAZYCK_KEY_LIBRARY, event.library);
    line.add_text(LAZYCK_KEY_BLOB, event.blob);
    line.add_text(LAZYCK_KEY_ARCH, event.arch);
    line.add(LAZYCK_KEY_PID, std::to_string(getpid()));
    line.add(LAZYCK_KEY_TID, std::to_string(thread));
    line.add_text(LAZYCK_KEY_HOST, host_name());
    line.add(LAZYCK_KEY_RANK, rank_number());
    if (event.has_failed) line.add(LAZYCK_KEY_FAILED, "true");
    line.add_text(LAZYCK_KEY_WHAT, event.what);
    if (event.peak_kib > 0) line.add(LAZYCK_KEY_KIB, std::to_string(event.peak_kib));
    if (event.size > 0) line.add(LAZYCK_KEY_SIZE, std::to_string(event.size));
    return line.text() + "\n";
}

void append_history(const std::string& path, const std::string& lines) {
    try {
        const UniqueFd directory = open_trusted_directory(directory_of(path), k_depth_of_history - 1);
        const std::string name = file_name_of(path);
        const UniqueFd fd = open_own_at(directory.get(), name, O_WRONLY | O_CREAT | O_APPEND);
        struct stat st;
        if (!fd || fstat(fd.get(), &st) != 0) return;  // a failure to keep a history is no error
        write_all(fd.get(), lines);
        if (st.st_size <= k_largest_history) return;
        renameat(directory.get(), name.c_str(), directory.get(), (name + ".1").c_str());
    } catch (const CompileError&) {
        // Others could write to the directory. The cache reports that.
    }
}

// The trace is a JSON array, with one event a line:
//     [
//     {"ph": "M", "name": "process_name", ...},
//     {"ph": "X", "name": <blob>, "cat": "compile", "wait" or "load", ...}
//     ]
// A process that appends writes over the closing bracket and writes the bracket again in the same
// write, under the file's lock. So the file is whole at any time, whichever process is killed.
// There is one exception: a process that is killed within the write of a line that crosses a page
// leaves half of it. The next process that appends cuts this half off.

// Locks an open file. Waits at most `patience`: others hold the lock for a write, or as long as
// they read. Returns false if another process still holds it. Where the file system has no locks,
// the result is true.
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
// the opening bracket. The result is npos if there is neither.
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
    event.add(LAZYCK_KEY_PH, json_string(phase));
    event.add(LAZYCK_KEY_NAME, json_string(name));
    event.add(LAZYCK_KEY_PID, std::to_string(getpid()));
    event.add(LAZYCK_KEY_TID, std::to_string(thread_number()));
    return event;
}

std::string naming_line() {
    const std::string rank = rank_number();
    JsonObject args;
    args.add_text(LAZYCK_KEY_NAME, (rank.empty() ? "" : "rank " + rank + ", ") + "process " + std::to_string(getpid()) +
                                       " on " + host_name());
    JsonObject line = trace_event("M", "process_name");
    line.add(LAZYCK_KEY_ARGS, args.text());
    return line.text();
}

std::string trace_line(const Event& event) {
    JsonObject args;
    args.add_text(LAZYCK_KEY_LIBRARY, event.library);
    args.add_text(LAZYCK_KEY_ARCH, event.arch);
    args.add_text(LAZYCK_KEY_WHAT, event.what);
    args.add(LAZYCK_KEY_FAILED, event.has_failed ? "true" : "false");
    if (event.peak_kib > 0) args.add(LAZYCK_KEY_PEAK_KIB, std::to_string(event.peak_kib));
    if (event.size > 0) args.add(LAZYCK_KEY_SIZE, std::to_string(event.size));
    JsonObject line = trace_event("X", event.blob);
    line.add_text(LAZYCK_KEY_CAT, event.kind);
    line.add(LAZYCK_KEY_TS, decimal(1e6 * event.start, 0));
    line.add(LAZYCK_KEY_DUR, decimal(1e6 * event.seconds, 0));
    line.add(LAZYCK_KEY_ARGS, args.text());
    return line.text();
}

}  // namespace

void Events::set_listener(Callback listener) {
    if (!close_queue(k_longest_telling))
        fail("lazyck: the previous listener is still handling an event after " + seconds_text(k_longest_telling) +
             "; it gets no more events. Does it wait for a lock that is held here (in Python, the GIL)?");
    {
        const std::lock_guard<std::mutex> guard(m_queue->mutex);
        m_queue->is_open = listener != nullptr;
        m_queue->callback = std::make_shared<const Callback>(std::move(listener));
    }
    prepare();
    const std::lock_guard<std::mutex> guard(m_queue->mutex);
    if (!m_queue->is_open || m_queue->has_thread) return;
    m_queue->is_open = false;
    fail_system("cannot start a thread for the listener", EAGAIN);
}

bool Events::close_queue(double seconds) {
    std::unique_lock<std::mutex> lock(m_queue->mutex);
    m_queue->is_open = false;
    m_queue->changed.tell();
    if (!m_queue->has_thread || m_queue->teller == std::this_thread::get_id()) return true;
    const auto is_over = [&] { return m_queue->messages.empty() && !m_queue->is_telling; };
    if (m_queue->changed.wait(lock, is_over, seconds)) return true;
    m_queue->messages.clear();
    return false;
}

void Events::prepare() {
    {
        const std::lock_guard<std::mutex> guard(m_queue->mutex);
        if (!m_queue->is_open || m_queue->has_thread) return;
        m_queue->has_thread = true;
    }
    if (start_thread([queue = m_queue] { run(queue); })) return;
    const std::lock_guard<std::mutex> guard(m_queue->mutex);
    m_queue->has_thread = false;
}

void Events::run(const std::shared_ptr<Queue>& queue) {
    std::unique_lock<std::mutex> lock(queue->mutex);
    queue->teller = std::this_thread::get_id();
    while (true) {
        queue->changed.wait(lock, [&] { return !queue->messages.empty() || !queue->is_open; });
        if (queue->messages.empty()) break;
        const auto message = std::move(queue->messages.front());
        queue->messages.pop_front();
        const std::size_t dropped = std::exchange(queue->dropped, 0);
        queue->is_telling = true;
        lock.unlock();
        if (dropped > 0)
            log_message(Level::warn, "the listener is too slow: it missed " + std::to_string(dropped) +
                                         (dropped == 1 ? " event" : " events"));
        message();
        lock.lock();
        queue->is_telling = false;
        queue->changed.tell();
    }
    queue->has_thread = false;
    queue->teller = std::thread::id();
    queue->changed.tell();
}

// Messages are delivered in order.
void Events::post(bool has_ended, const Event& event) {
    const std::lock_guard<std::mutex> guard(m_queue->mutex);
    if (!m_queue->is_open) return;
    if (m_queue->messages.size() >= k_most_messages) {
        ++m_queue->dropped;
        return;
    }
    m_queue->messages.emplace_back([callback = m_queue->callback, has_ended, event] { (*callback)(has_ended, event); });
    m_queue->changed.tell();
}

void Events::trace(const Event& event) {
    if (m_trace.empty()) return;
    const bool is_named = m_is_process_named.exchange(true);
    const std::string lines = (is_named ? "" : naming_line() + ",\n") + trace_line(event);
    // Only the first wait for a stopped process is long.
    const auto patience = m_has_warned ? k_pause_for_trace : k_wait_for_trace;
    const std::string problem = append_to_trace(m_trace, lines, patience);
    if (problem.empty()) return;
    if (!is_named) m_is_process_named = false;
    if (!m_has_warned.exchange(true)) log_message(Level::warn, "cannot write the trace '" + m_trace + "': " + problem);
}

void Events::tell(const Event& event, const std::string& history) {
    trace(event);
    bool is_time = std::strcmp(event.kind, LAZYCK_EVENT_LOAD) != 0;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        if (!history.empty()) {
            m_history = history;
            m_pending.emplace_back(event, thread_number());
            is_time |= m_pending.size() >= k_most_pending;
        }
    }
    if (is_time) flush();
    post(true, event);
}

void Events::flush() {
    std::vector<std::pair<Event, long>> pending;
    std::string lines, history;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        pending.swap(m_pending);
        history = m_history;
    }
    for (const auto& [event, thread] : pending) lines += history_line(event, thread);
    if (!lines.empty()) append_history(history, lines);
}

void Events::close() {
    flush();
    close_queue(k_longest_last_telling);
}

void Events::before_fork() {
    m_mutex.lock();
    m_queue->mutex.lock();
}

void Events::after_fork_in_parent() {
    m_queue->mutex.unlock();
    m_mutex.unlock();
}

void Events::after_fork_in_child() {
    // The parent's thread does not exist in the child, and the parent reports the events that were
    // still queued.
    const auto& parents = *new std::shared_ptr<Queue>(m_queue);  // leaked, since its waiters are gone
    m_queue = std::make_shared<Queue>();
    m_queue->callback = parents->callback;
    m_queue->is_open = parents->is_open;
    m_pending.clear();
    m_is_process_named = false;
    m_mutex.unlock();
}

}  // namespace lazyck::rt
