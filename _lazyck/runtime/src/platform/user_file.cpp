#include "platform/user_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

#include "lazyck_abi.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_longest_file = 64 * 1024;
constexpr char k_prefix[] = "LAZYCK_";

std::string without_blanks(const std::string& text) {
    const std::size_t first = text.find_first_not_of(" \t\r");
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool is_variable(const std::string& name) {
    return name.rfind(k_prefix, 0) == 0 &&
           name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
}

void read_lines(const std::string& text, UserFile& file) {
    std::size_t number = 0;
    for (std::size_t start = 0, end = 0; start < text.size(); start = end + 1) {
        end = std::min(text.find('\n', start), text.size());
        const std::string line = without_blanks(text.substr(start, end - start));
        ++number;
        if (line.empty() || line[0] == '#') continue;
        const std::size_t equals = line.find('=');
        const std::string name = without_blanks(line.substr(0, equals));
        if (equals == std::string::npos || !is_variable(name)) {
            file.problems.push_back(file.path + ":" + std::to_string(number) +
                                    ": not LAZYCK_NAME=VALUE: " + shell_quote(line));
        } else {
            file.values[name] = without_blanks(line.substr(equals + 1));
        }
    }
}

// Returns how many letters must be inserted, deleted or replaced to change `a` into `b`
// (Levenshtein, 1966).
std::size_t distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
        }
    }
    return row.back();
}

bool is_known(const std::string& name) {
    const Strings known = split(LAZYCK_VARIABLES, " "), others = split(LAZYCK_OTHER_VARIABLES, " ");
    return std::find(known.begin(), known.end(), name) != known.end() ||
           std::any_of(others.begin(), others.end(), [&](const std::string& o) { return name.rfind(o, 0) == 0; });
}

std::string unknown_text(const std::string& name) {
    std::string nearest;
    // At most half of the letters may differ from those of the suggested variable.
    std::size_t least = (name.size() + 1 - std::string(k_prefix).size()) / 2 + 1;
    for (const std::string& each : split(LAZYCK_VARIABLES, " ")) {
        const std::size_t found = distance(name, each);
        if (found >= least) continue;
        least = found;
        nearest = each;
    }
    return name + " is not a variable of lazyck" + (nearest.empty() ? "" : "; did you mean " + nearest + "?");
}

}  // namespace

UserFile read_user_file(const std::string& config_home, const std::string& home) {
    UserFile file;
    const bool is_given = !config_home.empty() && config_home[0] == '/';
    if (!is_given && (home.empty() || home[0] != '/')) return file;
    file.path = (is_given ? config_home : home + "/.config") + "/lazyck/lazyck.env";
    if (!is_file(file.path)) return file;
    const UniqueFd open = open_file(file.path, O_RDONLY | O_NONBLOCK);
    const std::string problem = open ? stranger_on_way(file.path) : system_text(errno);
    if (problem.empty()) {
        read_lines(read_text(open.get(), 0, k_longest_file), file);
    } else {
        file.problems.push_back(file.path + " is not read: " + problem);
    }
    return file;
}

Strings unknown_variables(const Strings& environment, const UserFile& file) {
    Strings found;
    for (const std::string& each : environment) {
        const std::string name = each.substr(0, each.find('='));
        if (is_variable(name) && !is_known(name)) found.push_back(unknown_text(name));
    }
    for (const auto& [name, value] : file.values) {
        if (!is_known(name)) found.push_back(file.path + ": " + unknown_text(name));
    }
    return found;
}

}  // namespace lazyck::rt
