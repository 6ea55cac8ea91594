// The file is never unlinked: two processes could then hold locks on two files of one name. It holds a line
// about the last holder, for the messages of those who wait.
#include "lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

#include "failure.h"
#include "messages.h"
#include "text.h"

namespace lazyck::rt {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds k_first_pause{2};
constexpr milliseconds k_longest_pause{100};
constexpr seconds k_first_notice{5};
constexpr seconds k_notice_interval{30};

std::string holder_line() {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    localtime_r(&now, &local);
    char time[32] = {};
    std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S", &local);
    return "process " + std::to_string(getpid()) + " on " + host_name() + " since " + time;
}

}  // namespace

BlobLock::BlobLock(const std::string& path, const std::string& what)
    : m_fd(open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW)) {
    if (!m_fd) fail_system("cannot open the lock file '" + path + "'", errno);
    const Clock::time_point start = Clock::now();
    Clock::time_point next_notice = start + k_first_notice;
    milliseconds pause = k_first_pause;
    while (flock(m_fd.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) fail_system("cannot lock '" + path + "'", errno);
        if (Clock::now() >= next_notice) {
            const std::string holder = read_text(path);
            const std::chrono::duration<double> waited = Clock::now() - start;
            say("waiting for " + what + " (" + seconds_text(waited.count()) + "), which " +
                (holder.empty() ? "another process" : holder) + " compiles");
            next_notice += k_notice_interval;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, k_longest_pause);
    }
    const std::string line = holder_line();
    // Only for messages: a full disk here must not stop anybody.
    if (ftruncate(m_fd.get(), 0) == 0) write_all(m_fd.get(), line);
}

BlobLock::~BlobLock() {
    // Explicitly: a child that was forked meanwhile shares the descriptor and would keep the lock.
    flock(m_fd.get(), LOCK_UN);
}

}  // namespace lazyck::rt
