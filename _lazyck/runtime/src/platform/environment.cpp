#include "platform/environment.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/lasting.h"
#include "platform/user_file.h"

namespace lazyck::rt {

namespace {

constexpr char k_system_path[] = "/usr/local/bin:/usr/bin:/bin";

Strings read_environment() {
    Strings all;
    for (char** variable = environ; !is_privileged() && variable != nullptr && *variable != nullptr; ++variable) {
        all.emplace_back(*variable);
    }
    return all;
}

Lasting<Strings> g_environment;
Lasting<UserFile> g_user_file;

// Returns whether the process's environment has `variable`, and sets `value` if so.
bool find_in_environment(const char* variable, std::string& value) {
    const std::size_t length = std::strlen(variable);
    for (const std::string& each : whole_environment()) {
        if (each.size() <= length || each[length] != '=' || each.compare(0, length, variable) != 0) continue;
        value = each.substr(length + 1);
        return true;
    }
    return false;
}

bool is_ours(const char* variable) { return std::strncmp(variable, "LAZYCK_", 7) == 0; }

const UserFile& user_file() {
    return g_user_file.get([] {
        std::string config_home, home;
        find_in_environment("XDG_CONFIG_HOME", config_home);
        find_in_environment("HOME", home);
        return read_user_file(config_home, home);
    });
}

}  // namespace

bool is_privileged() { return getauxval(AT_SECURE) != 0; }

const Strings& whole_environment() { return g_environment.get(read_environment); }

std::string environment(const char* variable) {
    std::string value;
    if (find_in_environment(variable, value) || !is_ours(variable)) return value;
    const auto found = user_file().values.find(variable);
    return found == user_file().values.end() ? "" : found->second;
}

std::string origin_of(const char* variable) {
    std::string value;
    const bool is_in_file = !find_in_environment(variable, value) && user_file().values.count(variable) != 0;
    return is_in_file ? user_file().path + ": " : "environment variable ";
}

Strings environment_problems() {
    Strings problems = user_file().problems;
    for (const std::string& each : unknown_variables(whole_environment(), user_file())) problems.push_back(each);
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

void forget_environment_in_child() {
    g_environment.forget();
    g_user_file.forget();
}

}  // namespace lazyck::rt
