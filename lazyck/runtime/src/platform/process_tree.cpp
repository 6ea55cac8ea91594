#include "platform/process_tree.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/text.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr char k_tracer[] = "TracerPid:\t";
constexpr int k_most_searches = 20;  // for new descendants while killing

// Reads the parent from /proc/<pid>/stat. The command's name, in parentheses, may contain anything;
// state and parent come after the last ')'.
pid_t parent_of(pid_t pid) {
    const std::string text = read_text("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t at = text.rfind(')');
    if (at == std::string::npos || at + 4 > text.size()) return 0;
    std::string_view rest = std::string_view(text).substr(at + 4);
    return static_cast<pid_t>(take_integer(rest).value_or(0));
}

long rss_kib(pid_t pid) {
    const std::string text = read_text("/proc/" + std::to_string(pid) + "/statm");
    std::string_view rest = text;
    take_integer(rest);  // the address space
    return take_integer(rest).value_or(0) * (sysconf(_SC_PAGESIZE) / 1024);
}

}  // namespace

bool is_traced() {
    // Reading the status costs as much as loading an entry, so it is done at most once a second.
    static std::atomic<std::time_t> asked{0};  // constant-initialized, so that it has no guard
    static std::atomic<bool> answer{false};
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (asked.exchange(now.tv_sec + 1) == now.tv_sec + 1) return answer;
    const std::string status = read_text("/proc/self/status", 1024);  // the line is one of the first
    const std::size_t at = status.find(k_tracer);
    answer = at != std::string::npos && status.substr(at + sizeof k_tracer - 1, 1) != "0";
    return answer;
}

std::vector<pid_t> process_tree(pid_t root) {
    std::multimap<pid_t, pid_t> children;
    const UniqueFd proc = open_file("/proc", O_RDONLY | O_DIRECTORY);
    for (const std::string& name : names_in(proc.get())) {
        const auto pid = static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10));
        if (pid > 0) children.emplace(parent_of(pid), pid);
    }
    std::vector<pid_t> found = {root};
    for (std::size_t i = 0; i < found.size(); ++i) {
        const auto range = children.equal_range(found[i]);
        for (auto child = range.first; child != range.second; ++child) found.push_back(child->second);
    }
    return found;
}

void kill_tree(pid_t root) {
    // Processes are stopped first, beginning with the root. A stopped process starts no new ones,
    // and stays the parent of those it has started.
    std::set<pid_t> stopped;
    for (int round = 0; round < k_most_searches; ++round) {
        bool has_new = false;
        for (const pid_t pid : process_tree(root)) {
            if (!stopped.insert(pid).second) continue;
            kill(pid, SIGSTOP);
            has_new = true;
        }
        if (!has_new) break;
    }
    for (const pid_t pid : stopped) kill(pid, SIGKILL);
}

long tree_rss_kib(pid_t root) {
    long sum = 0;
    for (const pid_t pid : process_tree(root)) sum += rss_kib(pid);
    return sum;
}

}  // namespace lazyck::rt
