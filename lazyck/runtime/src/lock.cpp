#include "lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <mutex>
#include <set>
#include <thread>

#include "config.h"
#include "failure.h"
#include "messages.h"
#include "text.h"

namespace lazyck::rt {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds k_shortest_pause{2};
constexpr milliseconds k_longest_pause{100};
constexpr int k_pauses_per_wait = 10;  // so nobody waits much longer than the compile takes
constexpr seconds k_first_notice{5};
constexpr seconds k_notice_interval{30};
constexpr std::size_t k_longest_line = 400;

std::string holder_line() {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    localtime_r(&now, &local);
    char time[32] = {};
    std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S", &local);
    const std::string rank = rank_name();
    return "process " + std::to_string(getpid()) + " on " + host_name() + (rank.empty() ? "" : " (" + rank + ")") +
           " since " + time;
}

// The descriptors of all locks that are held. On the heap and kept: threads may lock to the very end.
struct Held {
    std::mutex mutex;
    std::set<int> descriptors;
};

Held& held() {
    static Held* const s_held = new Held;
    return *s_held;
}

bool is_unusable(int error) {
    return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL || error == EIO;
}

}  // namespace

FileLock::FileLock(const std::string& path) : m_fd(open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW)) {
    if (!m_fd) fail_system("cannot open the lock file '" + path + "'", errno);
    const std::lock_guard<std::mutex> guard(held().mutex);
    held().descriptors.insert(m_fd.get());
    retry();
}

FileLock::~FileLock() {
    // Explicitly: a process that was started meanwhile without exec shares the descriptor and would keep the lock.
    if (m_state == State::held) flock(m_fd.get(), LOCK_UN);
    const std::lock_guard<std::mutex> guard(held().mutex);
    held().descriptors.erase(m_fd.get());
    m_fd = UniqueFd();
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
    // In this order, so that readers never find nothing.
    if (lseek(m_fd.get(), 0, SEEK_SET) != 0 || !write_all(m_fd.get(), text)) return;
    if (ftruncate(m_fd.get(), static_cast<off_t>(text.size())) != 0) return;
}

BlobLock::BlobLock(const std::string& path, const std::string& what, double patience,
                   const std::function<bool()>& is_made)
    : m_lock(path) {
    const Clock::time_point start = Clock::now();
    Clock::time_point next_notice = start + k_first_notice;
    while (m_lock.state() == FileLock::State::busy) {
        const std::chrono::duration<double> waited = Clock::now() - start;
        const bool is_over = waited.count() >= patience;
        if (is_over || Clock::now() >= next_notice) {
            const std::string holder = visible(read_text(path, k_longest_line));
            say(Level::info, "waiting for " + what + " (" + seconds_text(waited.count()) + "), which " +
                                 (holder.empty() ? "another process" : holder) + " compiles" +
                                 (is_over ? "; no longer: compiling it here too" : ""));
            next_notice += k_notice_interval;
        }
        if (is_over) return;
        const auto share = std::chrono::duration_cast<milliseconds>(waited / k_pauses_per_wait);
        std::this_thread::sleep_for(std::clamp(share, k_shortest_pause, k_longest_pause));
        // Before the lock is tried: with many waiters it would pass from one to the next, while the others sleep.
        if (is_made()) return;
        m_lock.retry();
    }
    if (m_lock.state() == FileLock::State::held) {
        m_lock.write(holder_line());
        return;
    }
    static std::atomic<bool> s_has_warned{false};
    if (!s_has_warned.exchange(true)) {
        say(Level::warn,
            "cannot lock '" + path + "' (" + system_text(m_lock.error()) +
                "): several processes may compile the same blob; a cache on a local file system has locks");
    }
}

void locks_before_fork() { held().mutex.lock(); }

void locks_after_fork_in_parent() { held().mutex.unlock(); }

void locks_after_fork_in_child() {
    for (const int descriptor : held().descriptors) close(descriptor);
    held().descriptors.clear();
    held().mutex.unlock();
}

}  // namespace lazyck::rt
