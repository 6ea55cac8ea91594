#include "history/profile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/failure.h"
#include "base/text.h"
#include "machine/machine.h"
#include "platform/environment.h"
#include "platform/files.h"
#include "platform/messages.h"

namespace lazyck::rt {

namespace {

constexpr char k_header[] =
    "# lazyck profile 1: blob, library, archs, order, calls, seconds, peak KiB, rank, process, time, kernel\n";
constexpr std::size_t k_columns = 10;  // a kernel's line has one more
constexpr char k_tab_in_kernel = '\x1f';

// Returns whether `text` can be recorded: a tab or a newline in a name would break the line.
bool is_plain(const std::string& text) { return text.find_first_of("\t\n\r") == std::string::npos; }

std::atomic<long long> g_start{0};  // of the first recording, in milliseconds since 1970

std::string process_name() {
    long long start = 0;
    const auto now = static_cast<long long>(now_seconds() * 1000);
    if (g_start.compare_exchange_strong(start, now)) start = now;
    return safe_name(host_name()) + ":" + std::to_string(getpid()) + ":" + std::to_string(start);
}

// Splits a line at its tabs. Unlike split, it keeps empty columns.
Strings columns_of(const std::string& line) {
    Strings columns;
    for (std::size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
        end = line.find('\t', at);
        columns.push_back(line.substr(at, end - at));
    }
    return columns;
}

// Returns the rows of `library` in the profile at `path`, in the order of the file.
std::vector<ProfileRow> rows_in(const std::string& path, const std::string& library) {
    MappedFile file;
    if (const int error = file.read(path, true)) fail_system("cannot read the profile '" + path + "'", error);
    std::vector<ProfileRow> rows;
    for (const std::string& line : split({reinterpret_cast<const char*>(file.data()), file.size()}, "\n")) {
        const Strings columns = columns_of(line);
        if (line[0] == '#' || columns[0].empty()) continue;
        if (columns.size() > 1 && !columns[1].empty() && columns[1] != library) continue;
        ProfileRow row;
        row.blob = columns[0];
        row.order = static_cast<unsigned>(rows.size() + 1);
        if (columns.size() >= k_columns) {
            row.order = static_cast<unsigned>(std::strtoul(columns[3].c_str(), nullptr, 10));
            row.calls = std::strtoul(columns[4].c_str(), nullptr, 10);
            row.seconds = number_in(columns[5]).value_or(0);
            row.peak_kib = std::strtol(columns[6].c_str(), nullptr, 10);
            row.process = columns[8];
            if (columns.size() > k_columns) row.kernel = columns[k_columns];
            std::replace(row.kernel.begin(), row.kernel.end(), k_tab_in_kernel, '\t');
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace

void append_profile(const std::string& path, const std::vector<ProfileRow>& rows) {
    const std::string rank = rank_name();
    std::string text;
    for (const ProfileRow& row : rows) {
        if (!is_plain(row.blob + row.library) || row.blob.empty() || row.blob[0] == '#') continue;
        const Strings columns = {row.blob,
                                 row.library,
                                 row.archs,
                                 std::to_string(row.order),
                                 std::to_string(row.calls),
                                 decimal(row.seconds, 1),
                                 std::to_string(row.peak_kib),
                                 rank.substr(rank.find(' ') + 1),
                                 process_name(),
                                 decimal(now_seconds(), 0)};
        std::string kernel = row.kernel;
        std::replace(kernel.begin(), kernel.end(), '\t', k_tab_in_kernel);
        text += join(columns, "\t") + (kernel.empty() || !is_plain(kernel) ? "" : "\t" + kernel) + "\n";
    }
    if (text.empty()) return;
    const UniqueFd fd = open_file(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK, 0644);
    struct stat st;
    const bool is_open = fd && fstat(fd.get(), &st) == 0;
    if (is_open && st.st_size == 0) text.insert(0, k_header);
    if (is_open && write_all(fd.get(), text)) return;
    static machine::Flag s_has_warned{false};
    const int error = errno;
    if (!s_has_warned.exchange(true))
        log_message(Level::warn, "cannot record in '" + path + "': " + system_text(error));
}

std::vector<ProfileRow> read_profile(const std::string& path, const std::string& library) {
    std::vector<ProfileRow> rows;
    std::unordered_map<std::string, std::size_t> by_name;
    for (ProfileRow& row : rows_in(path, library)) {
        const auto [found, is_new] = by_name.emplace(row.blob, rows.size());
        if (is_new) {
            rows.push_back(std::move(row));
            continue;
        }
        ProfileRow& known = rows[found->second];
        known.order = std::min(known.order, row.order);
        known.calls = std::max(known.calls, row.calls);
        known.seconds = std::max(known.seconds, row.seconds);
        known.peak_kib = std::max(known.peak_kib, row.peak_kib);
    }
    // Several processes each have a first blob. Rows of equal order stay in the order of the file.
    std::multimap<unsigned, ProfileRow> by_order;
    for (ProfileRow& row : rows) by_order.emplace(row.order, std::move(row));
    std::vector<ProfileRow> sorted;
    for (auto& [order, row] : by_order) sorted.push_back(std::move(row));
    return sorted;
}

}  // namespace lazyck::rt
