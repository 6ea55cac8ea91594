#include "platform/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/failure.h"
#include "base/text.h"
#include "machine/machine.h"
#include "platform/environment.h"

namespace lazyck::rt {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds k_shortest_pause{2};
constexpr milliseconds k_longest_pause{100};
constexpr int k_pauses_per_wait = 10;  // so that no process waits much longer than the compile takes
constexpr std::size_t k_longest_line = 400;

std::string holder_line() {
    const std::string rank = rank_name();
    return "process " + std::to_string(getpid()) + " on " + host_name() + (rank.empty() ? "" : " (" + rank + ")") +
           " since " + utc_text(std::time(nullptr));
}

machine::Flag g_has_warned{false};

bool is_unusable(int error) {
    return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL || error == EIO;
}

}  // namespace

FileLock::FileLock(const std::string& path) : m_fd(open_own(path, O_RDWR | O_CREAT)) {
    if (!m_fd) fail_system("cannot open the lock file '" + path + "'", errno);
    retry();
}

// The lock is released explicitly: a process that was started meanwhile without exec may share the
// descriptor and would keep the lock.
FileLock::~FileLock() {
    if (m_state == State::held) flock(m_fd.get(), LOCK_UN);
}

FileLock::State FileLock::retry() {
    int status;
    do {
        status = flock(m_fd.get(), LOCK_EX | LOCK_NB);
    } while (status != 0 && errno == EINTR);
    m_error = status == 0 ? 0 : errno;
    m_state = status == 0 ? State::held : m_error == EWOULDBLOCK ? State::busy : State::unusable;
    if (m_state == State::unusable && !is_unusable(m_error)) fail_system("cannot lock a file of the cache", m_error);
    return m_state;
}

void FileLock::write(const std::string& text) {
    // The text is written before the file is truncated, so that readers never find an empty file.
    if (lseek(m_fd.get(), 0, SEEK_SET) != 0 || !write_all(m_fd.get(), text)) return;
    if (ftruncate(m_fd.get(), static_cast<off_t>(text.size())) != 0) return;
}

// Parses lines of /proc/locks: "<n>: FLOCK ADVISORY WRITE <process> <major>:<minor>:<inode> <start>
// <end>". A process that waits has "->" as its second word.
std::string lock_holder(const std::string& path) {
    struct stat st;
    if (stat(path.c_str(), &st) != 0) return "";
    const std::string end = ":" + std::to_string(st.st_ino);
    for (const std::string& line : split(read_text("/proc/locks"), "\n")) {
        const Strings words = split(line, " ");
        // The number is 0 if the process is in another PID namespace.
        if (words.size() < 6 || words[1] != "FLOCK" || words[4] == "0") continue;
        const std::string& file = words[5];
        if (file.size() < end.size() || file.compare(file.size() - end.size(), end.size(), end) != 0) continue;
        const std::string stat_text = read_text("/proc/" + words[4] + "/stat");
        const std::size_t at = stat_text.rfind(')');
        const char state = at != std::string::npos && at + 2 < stat_text.size() ? stat_text[at + 2] : '?';
        return "process " + words[4] + (state == 'T' || state == 't' ? std::string(" ") + k_stopped : "");
    }
    return "";
}

BlobLock::BlobLock(const std::string& path, const Subject& subject, double patience,
                   const std::function<bool()>& is_made)
    : FileLock(path) {
    WaitNotice notice;
    while (state() == State::busy) {
        const double waited = notice.waited();
        const bool is_over = waited >= patience, is_due = notice.is_due();
        if (is_over || is_due) {
            std::string holder = visible(read_text(path, k_longest_line));
            if (!holder.empty() && lock_holder(path).find(k_stopped) != std::string::npos)
                holder += std::string(" ") + k_stopped;
            log_message(Level::info,
                        "waiting for " + subject.words + " (" + seconds_text(waited) + "), which " +
                            (holder.empty() ? "another process" : holder) + " compiles" +
                            (is_over ? "; giving up, and compiling it here too" : ""),
                        {"wait", subject, waited, is_over ? "gave_up" : ""});
        }
        if (is_over) return;
        const auto share = milliseconds(static_cast<long>(1000 * waited / k_pauses_per_wait));
        std::this_thread::sleep_for(std::clamp(share, k_shortest_pause, k_longest_pause));
        // This is checked before the lock is tried. With many waiters, the lock would otherwise
        // pass from one to the next while the others sleep.
        if (is_made()) return;
        retry();
    }
    if (state() == State::held) {
        write(holder_line());
        return;
    }
    if (!g_has_warned.exchange(true)) {
        log_message(Level::warn,
                    "cannot lock '" + path + "' (" + system_text(error()) +
                        "): several processes may compile the same blob; a cache on a local file system has locks");
    }
}

}  // namespace lazyck::rt
