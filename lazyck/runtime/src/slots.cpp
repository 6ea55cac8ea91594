#include "slots.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "files.h"
#include "messages.h"
#include "process_tree.h"
#include "text.h"

namespace lazyck::rt {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds k_first_pause{5};
constexpr milliseconds k_longest_pause{200};
constexpr seconds k_first_notice{5};
constexpr seconds k_notice_interval{30};
constexpr long k_unknown = -1;

// The number behind `name` in a file of lines "<name> <number> ...".
long number_in(const std::string& path, const std::string& name) {
    for (const std::string& line : split(read_text(path), "\n")) {
        long value = 0;
        if (line.compare(0, name.size(), name) == 0 && std::sscanf(line.c_str() + name.size(), "%ld", &value) == 1) {
            return value;
        }
    }
    return k_unknown;
}

// What this process's cgroup (version 2) and those above it leave, in kilobytes.
long cgroup_room_kib() {
    std::string group;
    for (const std::string& line : split(read_text("/proc/self/cgroup"), "\n")) {
        if (line.compare(0, 3, "0::") == 0) group = line.substr(3);
    }
    long room = k_unknown;
    for (; !group.empty(); group = group == "/" ? "" : directory_of(group)) {
        const std::string at = "/sys/fs/cgroup" + (group == "/" ? "" : group);
        const long most = number_in(at + "/memory.max", ""), used = number_in(at + "/memory.current", "");
        if (most < 0 || used < 0) continue;
        // What it has cached of files can be dropped.
        const long cached = std::max(0L, number_in(at + "/memory.stat", "inactive_file "));
        const long left = std::max(0L, most - used + cached) / 1024;
        room = room < 0 ? left : std::min(room, left);
    }
    return room;
}

std::string gigabytes(long kib) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f GB", static_cast<double>(kib) / (1024.0 * 1024.0));
    return text;
}

}  // namespace

long free_memory_kib() {
    const long machine = number_in("/proc/meminfo", "MemAvailable:"), group = cgroup_room_kib();
    if (machine < 0 || group < 0) return std::max(machine, group);
    return std::min(machine, group);
}

CompileSlot::CompileSlot(const std::string& directory, unsigned jobs, long needed_kib, const std::string& what)
    : m_needed_kib(needed_kib) {
    const Clock::time_point start = Clock::now();
    Clock::time_point next_notice = start + k_first_notice;
    milliseconds pause = k_first_pause;
    while (true) {
        Wanting wanting;
        {
            // Without locks everybody decides alone, and has no slot to show to others.
            FileLock admission(directory + "/admission");
            while (admission.state() == FileLock::State::busy) {
                std::this_thread::sleep_for(k_first_pause);
                admission.retry();
            }
            wanting = try_once(directory, jobs, admission.state() == FileLock::State::held);
        }
        if (wanting == Wanting::nothing) return;
        if (Clock::now() >= next_notice) {
            const std::chrono::duration<double> waited = Clock::now() - start;
            const std::string others = std::to_string(m_busy) + (m_busy == 1 ? " compile runs" : " compiles run");
            const std::string wanted = wanting == Wanting::slot
                                           ? "a compile slot: " + others
                                           : gigabytes(m_needed_kib) + " of memory: " + others + " on this host";
            say(Level::info, what + " waits (" + seconds_text(waited.count()) + ") for " + wanted);
            next_notice += k_notice_interval;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, k_longest_pause);
    }
}

// Looks at all slots: takes the first free one if there is memory for one more.
CompileSlot::Wanting CompileSlot::try_once(const std::string& directory, unsigned jobs, bool has_locks) {
    if (!has_locks) return Wanting::nothing;
    std::unique_ptr<FileLock> mine;
    long promised = 0;  // to running compilers, and not used by them yet
    m_busy = 0;
    for (unsigned i = 0; i < jobs; ++i) {
        const std::string path = directory + "/slot-" + std::to_string(i);
        auto slot = std::make_unique<FileLock>(path);
        if (slot->state() == FileLock::State::held) {
            if (!mine) mine = std::move(slot);
            continue;
        }
        ++m_busy;
        long reserved = 0;
        int compiler = 0;
        if (std::sscanf(read_text(path).c_str(), "%ld %d", &reserved, &compiler) != 2) continue;
        promised += std::max(0L, reserved - (compiler > 0 ? tree_rss_kib(compiler) : 0));
    }
    if (!mine) return Wanting::slot;
    const long room = free_memory_kib();
    if (m_busy > 0 && m_needed_kib > 0 && room >= 0 && room - promised < m_needed_kib) return Wanting::memory;
    mine->write(std::to_string(m_needed_kib) + " 0\n");
    m_lock = std::move(mine);
    return Wanting::nothing;
}

void CompileSlot::started(pid_t compiler) {
    if (m_lock) m_lock->write(std::to_string(m_needed_kib) + " " + std::to_string(compiler) + "\n");
}

}  // namespace lazyck::rt
