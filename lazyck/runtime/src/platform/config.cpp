#include "platform/config.h"

#include <pwd.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/text.h"
#include "platform/files.h"
#include "platform/messages.h"

namespace lazyck::rt {

namespace {

constexpr unsigned k_most_jobs = 4096;

[[noreturn]] void fail_variable(const std::string& variable, const std::string& value, const std::string& wanted) {
    fail("lazyck: " + origin_of(variable.c_str()) + variable + "=" + shell_quote(value) + ": " + wanted);
}

template <typename T>
T read_choice(const char* variable, std::initializer_list<std::pair<const char*, T>> choices, const char* wanted) {
    const std::string value = environment(variable);
    for (const auto& [text, choice] : choices) {
        if (value == text) return choice;
    }
    fail_variable(variable, value, wanted);
}

bool read_switch(const char* variable, bool by_default = false) {
    const std::string value = environment(variable);
    for (const char* yes : {"1", "true", "yes", "on"}) {
        if (value == yes) return true;
    }
    for (const char* no : {"0", "false", "no", "off"}) {
        if (value == no) return false;
    }
    if (!value.empty()) fail_variable(variable, value, "must be 0 or 1");
    return by_default;
}

// Returns the number of cores that this process may use. A container or a batch job often has fewer
// than the machine.
unsigned usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
    return static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

unsigned read_jobs() {
    const std::string value = environment(LAZYCK_ENV_JOBS);
    if (value.empty()) return usable_cores();
    unsigned jobs = 0;
    const char* const end = value.data() + value.size();
    const auto [behind, error] = std::from_chars(value.data(), end, jobs);
    if (error != std::errc() || behind != end || jobs < 1 || jobs > k_most_jobs)
        fail_variable(LAZYCK_ENV_JOBS, value, "must be a number from 1 to 4096");
    return jobs;
}

// Returns a number of seconds, such as 90 or 0.5.
double read_seconds(const char* variable, double by_default) {
    const std::string value = environment(variable);
    if (value.empty()) return by_default;
    const std::optional<double> seconds = seconds_in(value);
    if (!seconds) fail_variable(variable, value, "must be a number of seconds, 0 or more");
    return *seconds;
}

// Returns a size such as 4G or 512MB, in KiB.
long read_size_kib(const char* variable, long by_default) {
    const std::string value = environment(variable);
    if (value.empty()) return by_default;
    const std::optional<double> bytes = size_in(value);
    if (!bytes) fail_variable(variable, value, "must be a size such as 4G or 512M, or 0");
    const double kib = *bytes / 1024;
    const long whole = static_cast<long>(kib);
    return whole + (whole < kib);  // rounded up, because 0 has a meaning of its own
}

bool is_plain_name(const std::string& name) { return name[0] != '.' && name.find('/') == std::string::npos; }

std::string read_name() {
    std::string name = environment(LAZYCK_ENV_NAME);
    if (!is_plain_name(name)) fail_variable(LAZYCK_ENV_NAME, name, "must be a plain directory name");
    return name;
}

std::string read_path(const char* variable) {
    const std::string value = environment(variable);
    return value.empty() ? value : absolute(value);
}

// Returns the user's home directory as the system knows it, or an empty string.
std::string home_of_account() {
    passwd entry;
    passwd* found = nullptr;
    std::vector<char> buffer(16 * 1024);
    const int error = getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found);
    return error == 0 && found != nullptr ? entry.pw_dir : "";
}

// Returns $XDG_CACHE_HOME, else ~/.cache, or an empty string. The system's name services, which
// load libraries, are asked here because no lock is held.
std::string read_caches(bool is_given) {
    const std::string xdg = environment("XDG_CACHE_HOME");
    if (xdg[0] == '/') return xdg;
    std::string home = environment("HOME");
    if (home[0] != '/' && !is_given) home = home_of_account();
    return home[0] != '/' ? "" : home + "/.cache";
}

}  // namespace

std::string cache_root(const std::string& text, const char* what) {
    const auto refuse = [&](const char* reason) {
        fail(std::string("lazyck: ") + what + shell_quote(text) + ": " + reason +
             "; give the absolute path of a directory of your own");
    };
    if (text[0] != '/') {
        refuse("a cache below the working directory is refused: whoever can write there could put any code into it");
    }
    std::string root;
    for (const std::string& part : split(text, "/")) {
        // With '..' behind a link, the path would lead elsewhere than it looks.
        if (part == "..") refuse("'..' in the cache's path is refused");
        if (part != ".") root += "/" + part;
    }
    if (root.empty()) refuse("the root directory cannot be the cache");
    return root;
}

bool aborts_on_error() { return environment(LAZYCK_ENV_ON_ERROR) == "abort"; }

Strings parse_archs(const std::string& text, const char* variable) {
    std::set<std::string> archs;
    for (std::string name : split(text, ";, \t\n")) {
        name = name.substr(0, name.find(':'));
        for (const std::string_view prefix : {"sm_", "compute_"}) {
            if (name.rfind(prefix, 0) == 0) name.erase(0, prefix.size());
        }
        if (name[0] >= '0' && name[0] <= '9') name.erase(std::remove(name.begin(), name.end(), '.'), name.end());
        const bool is_good = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        });
        if (!is_good || name[0] == '-')
            fail_variable(variable, text, "not a list of archs, such as gfx942;gfx950 or 80;90");
        archs.insert(name);
    }
    return {archs.begin(), archs.end()};
}

Config read_config() {
    Config config;
    config.cache_dir = environment(LAZYCK_ENV_CACHE_DIR);
    if (!config.cache_dir.empty()) config.cache_dir = cache_root(config.cache_dir, LAZYCK_ENV_CACHE_DIR "=");
    config.root = read_path(LAZYCK_ENV_ROOT);
    config.caches = read_caches(!config.cache_dir.empty());
    config.name = read_name();
    check_log_settings();
    config.jit = read_choice<Jit>(
        LAZYCK_ENV_JIT, {{"", Jit::on}, {"on", Jit::on}, {"warn", Jit::warn}, {"error", Jit::error}, {"off", Jit::off}},
        "must be on, warn, error or off");
    if (!environment(LAZYCK_ENV_BY_KERNEL).empty())
        config.by_kernel = read_switch(LAZYCK_ENV_BY_KERNEL) ? ByKernelChoice::always : ByKernelChoice::never;
    config.has_preambles = read_switch(LAZYCK_ENV_PREAMBLES, config.has_preambles);
    config.has_text_keys = read_switch(LAZYCK_ENV_TEXT_KEYS, config.has_text_keys);
    config.has_all_text_keys = read_switch(LAZYCK_ENV_TEXT_KEYS, config.has_all_text_keys);
    config.archs = parse_archs(environment(LAZYCK_ENV_ARCHS), LAZYCK_ENV_ARCHS);
    config.jobs = read_jobs();
    config.has_remote = !environment(LAZYCK_ENV_REMOTE).empty();
    config.compile_service = environment(LAZYCK_ENV_REMOTE_COMPILE);
    config.remote_helper = environment(LAZYCK_ENV_REMOTE_HELPER);
    if (config.remote_helper.empty()) config.remote_helper = LAZYCK_REMOTE_HELPER;
    config.launcher = split(environment(LAZYCK_ENV_LAUNCHER), " \t\n");
    config.salt = environment(LAZYCK_ENV_EXTRA_CACHE_KEY);
    config.lock_timeout = read_seconds(LAZYCK_ENV_LOCK_TIMEOUT, config.lock_timeout);
    config.compile_timeout = read_seconds(LAZYCK_ENV_COMPILE_TIMEOUT, config.compile_timeout);
    config.mem_per_job_kib = read_size_kib(LAZYCK_ENV_MEM_PER_JOB, config.mem_per_job_kib);
    for (const std::string& path : split(environment(LAZYCK_ENV_CACHE_PATH), ":")) {
        config.cache_path.push_back(cache_root(path, LAZYCK_ENV_CACHE_PATH ": "));
    }
    config.cache_max_kib = read_size_kib(LAZYCK_ENV_CACHE_MAXSIZE, config.cache_max_kib);
    config.profile = read_path(LAZYCK_ENV_RECORD);
    config.prefetch = read_path(LAZYCK_ENV_PREFETCH);
    config.trace = read_path(LAZYCK_ENV_TRACE);
    read_choice<bool>(LAZYCK_ENV_ON_ERROR, {{"", false}, {"throw", false}, {"abort", true}}, "must be throw or abort");
    return config;
}

std::string default_cache_dir(const std::string& caches, const std::string& name) {
    if (name.empty() || !is_plain_name(name)) {
        fail("lazyck: the library's name for its cache, " + shell_quote(name) +
             ", is not a plain directory name; set " LAZYCK_ENV_CACHE_DIR " or " LAZYCK_ENV_NAME);
    }
    if (caches.empty()) fail("lazyck: no home directory for the cache; set " LAZYCK_ENV_CACHE_DIR);
    return cache_root(caches + "/" + name, "XDG_CACHE_HOME or HOME gives the cache ");
}

}  // namespace lazyck::rt
