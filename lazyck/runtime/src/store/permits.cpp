#include "store/permits.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <thread>
#include <utility>

#include "base/text.h"
#include "platform/files.h"
#include "platform/process_tree.h"

namespace lazyck::rt {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds k_first_pause{5};
constexpr milliseconds k_longest_permit_pause{200};
constexpr double k_most_moments = 10;  // seconds
constexpr long k_unknown = -1;
constexpr unsigned k_enough_to_pay = 4;  // compiles after which a preamble has paid off

// Returns the number after `name` in a file of lines "<name> <number> ...", or k_unknown.
long figure_in(const std::string& path, const std::string& name) {
    for (const std::string& line : split(read_text(path), "\n")) {
        if (line.compare(0, name.size(), name) != 0) continue;
        std::string_view rest = std::string_view(line).substr(name.size());
        if (const auto value = take_integer(rest)) return *value;
    }
    return k_unknown;
}

// Returns the kilobytes that are left in this process's cgroup (version 2) and those above it, or
// k_unknown. `groups` is a file like /proc/self/cgroup, and `root` where cgroups are.
long cgroup_room_kib(const std::string& groups, const std::string& root) {
    std::string group;
    for (const std::string& line : split(read_text(groups), "\n")) {
        if (line.compare(0, 3, "0::") == 0) group = line.substr(3);
    }
    long room = k_unknown;
    for (; !group.empty(); group = group == "/" ? "" : directory_of(group)) {
        const std::string at = root + (group == "/" ? "" : group);
        const long most = figure_in(at + "/memory.max", ""), used = figure_in(at + "/memory.current", "");
        if (most < 0 || used < 0) continue;
        // The kernel can drop file pages from the cache of the group.
        const long cached = std::max(0L, figure_in(at + "/memory.stat", "inactive_file "));
        const long left = std::max(0L, most - used + cached) / 1024;
        room = room < 0 ? left : std::min(room, left);
    }
    return room;
}

}  // namespace

void ProcessPermits::announce(const std::string& blob, const std::string& first) {
    ++m_state->announced;
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    m_state->behind[blob] = first;
}

void ProcessPermits::needs_none(const std::string& first) {
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    let_pass(first);
}

// Lets blobs that are behind `first` get permits. The caller holds the mutex.
void ProcessPermits::let_pass(const std::string& first) {
    auto& behind = m_state->behind;
    for (auto each = behind.begin(); each != behind.end();)
        each = each->second == first ? behind.erase(each) : std::next(each);
    m_state->changed.tell();
}

void ProcessPermits::after_fork_in_child() {
    static_cast<void>(m_state.release());
    m_state = std::make_unique<State>(m_count);
}

HeldPermit::HeldPermit(ProcessPermits& permits, const std::string& blob) : m_permits(permits) {
    ProcessPermits::State& state = *m_permits.m_state;
    std::unique_lock<std::mutex> lock(state.mutex);
    ++state.waiting;
    state.changed.wait(lock, [&] { return state.free > 0 && state.behind.count(blob) == 0; });
    --state.waiting;
    --state.free;
    m_permits.let_pass(blob);
}

HeldPermit::HeldPermit(ProcessPermits& permits) : m_permits(permits) {
    ProcessPermits::State& state = *m_permits.m_state;
    std::unique_lock<std::mutex> lock(state.mutex);
    const auto may_begin = [&] { return state.waiting == 0 || state.waiting >= k_enough_to_pay; };
    state.changed.wait(lock, [&] { return state.free > 0 && may_begin(); });
    --state.free;
}

bool HeldPermit::takes_one_more() {
    ProcessPermits::State& state = *m_permits.m_state;
    const std::lock_guard<std::mutex> guard(state.mutex);
    if (state.free == 0) return false;
    --state.free;
    ++m_held;
    return true;
}

HeldPermit::~HeldPermit() {
    ProcessPermits::State& state = *m_permits.m_state;
    {
        const std::lock_guard<std::mutex> guard(state.mutex);
        state.free += m_held;
    }
    state.changed.tell();
}

long free_memory_kib() {
    const long machine = figure_in("/proc/meminfo", "MemAvailable:"),
               group = cgroup_room_kib("/proc/self/cgroup", "/sys/fs/cgroup");
    if (machine < 0 || group < 0) return std::max(machine, group);
    return std::min(machine, group);
}

HostPermit::HostPermit(PermitRequest request) : m_request(std::move(request)) {
    WaitNotice notice;
    milliseconds pause = k_first_pause;
    while (true) {
        Wanting wanting;
        {
            FileLock admission(m_request.directory + "/admission");
            // Without locks each process decides alone, and has no permit that others could see.
            if (!admit(admission, notice)) return;
            wanting = try_once();
        }
        if (wanting == Wanting::nothing) return;
        if (notice.is_due()) {
            const std::string others = std::to_string(m_busy) + (m_busy == 1 ? " compile runs" : " compiles run");
            const std::string wanted = wanting == Wanting::permit
                                           ? "a compile permit: " + others
                                           : size_text(1024.0 * static_cast<double>(m_request.needed_kib)) +
                                                 " of memory: " + others + " on this host";
            const double waited = notice.waited();
            log_message(Level::info, m_request.subject.words + " waits (" + seconds_text(waited) + ") for " + wanted,
                        {"wait", m_request.subject, waited});
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, k_longest_permit_pause);
    }
}

// Waits for the lock under which one process at a time decides. A decision takes moments: a process
// that takes longer has been stopped, and this one goes on without the lock. Two processes may then
// decide at a time, and count on memory that only one can have. Returns false if the file system
// has no locks.
bool HostPermit::admit(FileLock& admission, WaitNotice& notice) {
    const Clock::time_point start = Clock::now();
    const double patience = std::min(k_most_moments, m_request.patience);
    while (admission.state() == FileLock::State::busy) {
        const double waited = seconds_since(start);
        const bool is_over = waited >= patience, is_due = notice.is_due();
        if (is_over || is_due) {
            const std::string path = m_request.directory + "/admission";
            const std::string holder = lock_holder(path);
            log_message(is_over ? Level::warn : Level::info,
                        m_request.subject.words + " waits (" + seconds_text(waited) + ") for " +
                            (holder.empty() ? "the process" : holder) + ", which holds '" + path + "'" +
                            (is_over ? "; giving up: is it stopped?" : ""),
                        {"wait", m_request.subject, waited, is_over ? "gave_up" : ""});
        }
        if (is_over) return true;
        std::this_thread::sleep_for(k_first_pause);
        admission.retry();
    }
    return admission.state() != FileLock::State::unusable;
}

// Returns whether the holder of a permit has had it for too long. The text of its file changes with
// every compile.
bool HostPermit::is_passed_over(unsigned permit, const std::string& path, const std::string& text) {
    Holder& holder = m_holders[permit];
    if (holder.text != text) holder = {text, Clock::now()};
    const double held = seconds_since(holder.since);
    if (held < std::min(k_most_moments, m_request.patience)) return false;
    const std::string process = lock_holder(path);
    const bool is_stopped = process.find(k_stopped) != std::string::npos;
    if (!is_stopped && held < m_request.patience) return false;
    log_once(path + text,
             m_request.subject.words + " goes on without waiting for " + (process.empty() ? "the process" : process) +
                 ", which has held the compile permit '" + path + "' for " + seconds_text(held) +
                 (is_stopped ? " or longer" : " or longer; does it hang?"),
             {"wait", m_request.subject, -1, "gave_up"});
    return true;
}

// Checks all permits, and takes the first free one if there is memory for one more compile.
HostPermit::Wanting HostPermit::try_once() {
    std::unique_ptr<FileLock> mine;
    long promised = 0;  // to running compilers that do not use it yet
    m_busy = 0;
    // Each permit that is passed over is replaced by one more.
    for (unsigned i = 0, count = m_request.jobs; i < count; ++i) {
        const std::string path = m_request.directory + "/slot-" + std::to_string(i);
        auto permit = std::make_unique<FileLock>(path);
        if (permit->state() == FileLock::State::held) {
            if (!mine) mine = std::move(permit);
            continue;
        }
        const std::string text = read_text(path);
        if (is_passed_over(i, path, text)) {
            ++count;
            continue;
        }
        ++m_busy;
        std::string_view rest = text;
        const auto reserved = take_integer(rest), compiler = take_integer(rest);
        if (!reserved || !compiler) continue;
        promised += std::max(0L, *reserved - (*compiler > 0 ? tree_rss_kib(static_cast<pid_t>(*compiler)) : 0));
    }
    if (!mine) return Wanting::permit;
    const long room = free_memory_kib(), needed = m_request.needed_kib;
    if (m_busy > 0 && needed > 0 && room >= 0 && room - promised < needed) return Wanting::memory;
    mine->write(std::to_string(needed) + " 0\n");
    m_lock = std::move(mine);
    return Wanting::nothing;
}

void HostPermit::started(pid_t compiler) {
    if (!m_lock) return;
    m_lock->write(std::to_string(m_request.needed_kib) + " " + std::to_string(compiler) + "\n");
}

}  // namespace lazyck::rt
