#include "environment.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>

#include "lasting.h"

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

}  // namespace

bool is_privileged() { return getauxval(AT_SECURE) != 0; }

const Strings& whole_environment() { return g_environment.get(read_environment); }

std::string environment(const char* variable) {
    const std::size_t length = std::strlen(variable);
    for (const std::string& each : whole_environment()) {
        if (each.size() > length && each[length] == '=' && each.compare(0, length, variable) == 0)
            return each.substr(length + 1);
    }
    return "";
}

std::string search_path(const std::string& path) {
    std::string absolute;
    for (const std::string& directory : split(path, ":")) {
        if (directory[0] == '/') absolute += (absolute.empty() ? "" : ":") + directory;
    }
    return absolute.empty() ? k_system_path : absolute;
}

std::string rank_name() {
    for (const char* variable : {"RANK", "LOCAL_RANK"}) {
        const std::string value = environment(variable);
        const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
        if (is_number && value.size() < 10) return "rank " + value;
    }
    return "";
}

void forget_environment_in_child() { g_environment.forget(); }

}  // namespace lazyck::rt
