#include "platform/environment.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr char k_system_path[] = "/usr/local/bin:/usr/bin:/bin";
constexpr std::size_t k_longest_file = 64 * 1024;
constexpr char k_prefix[] = "LAZYCK_";

// The user's file of settings: values of lazyck's variables that the environment lacks.
struct UserFile {
    std::string path;                           // empty if no directory is known for it
    std::map<std::string, std::string> values;  // by variable
    Strings problems;                           // why the file, or a line of it, was not read
};

Lasting<Strings> g_environment;
Lasting<UserFile> g_user_file;
Lasting<std::string> g_host_name;

Strings read_environment() {
    Strings all;
    for (char** variable = environ; !is_privileged() && variable != nullptr && *variable != nullptr; ++variable) {
        all.emplace_back(*variable);
    }
    return all;
}

std::optional<std::string> in_environment(const std::string& variable) {
    const std::string start = variable + "=";
    for (const std::string& each : whole_environment()) {
        if (each.rfind(start, 0) == 0) return each.substr(start.size());
    }
    return std::nullopt;
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
            file.problems.push_back(file.path + ":" + std::to_string(number) + ": not LAZYCK_NAME=VALUE");
        } else {
            file.values[name] = without_blanks(line.substr(equals + 1));
        }
    }
}

// Reads the file below XDG_CONFIG_HOME, or else below HOME. A missing file has no values. A file
// that others could have written is not read: LAZYCK_LAUNCHER in it would run their program.
UserFile read_user_file() {
    UserFile file;
    std::string directory = in_environment("XDG_CONFIG_HOME").value_or("");
    if (directory.empty() || directory[0] != '/') {
        const std::string home = in_environment("HOME").value_or("");
        if (home.empty() || home[0] != '/') return file;
        directory = home + "/.config";
    }
    file.path = directory + "/lazyck/lazyck.env";
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

const UserFile& user_file() { return g_user_file.get(read_user_file); }

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

// Suggests the variable that was probably meant.
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

bool is_privileged() { return getauxval(AT_SECURE) != 0; }

const Strings& whole_environment() { return g_environment.get(read_environment); }

std::string environment(const char* variable) {
    if (const auto value = in_environment(variable)) return *value;
    if (!is_variable(variable)) return "";  // the file has only lazyck's variables
    const auto found = user_file().values.find(variable);
    return found == user_file().values.end() ? "" : found->second;
}

std::string origin_of(const char* variable) {
    const bool is_in_file = !in_environment(variable) && user_file().values.count(variable) != 0;
    return is_in_file ? user_file().path + ": " : "environment variable ";
}

Strings environment_problems() {
    Strings problems = user_file().problems;
    for (const std::string& each : whole_environment()) {
        const std::string name = each.substr(0, each.find('='));
        if (is_variable(name) && !is_known(name)) problems.push_back(unknown_text(name));
    }
    for (const auto& [name, value] : user_file().values) {
        if (!is_known(name)) problems.push_back(user_file().path + ": " + unknown_text(name));
    }
    return problems;
}

std::string search_path(const std::string& path) {
    std::string absolute;
    for (const std::string& directory : split(path, ":")) {
        if (directory[0] == '/') absolute += (absolute.empty() ? "" : ":") + directory;
    }
    return absolute.empty() ? k_system_path : absolute;
}

std::string rank_number() {
    for (const char* variable : {"RANK", "LOCAL_RANK"}) {
        const std::string value = environment(variable);
        const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
        // Leading zeros are dropped, because JSON forbids them in a number.
        if (is_number && value.size() < 10)
            return value.substr(std::min(value.find_first_not_of('0'), value.size() - 1));
    }
    return "";
}

std::string rank_name() {
    const std::string number = rank_number();
    return number.empty() ? "" : "rank " + number;
}

const std::string& host_name() {
    return g_host_name.get([] {
        char name[256] = {};
        return std::string(gethostname(name, sizeof name - 1) == 0 ? name : "?");
    });
}

void forget_environment_in_child() {
    g_environment.forget();
    g_user_file.forget();
}

}  // namespace lazyck::rt
