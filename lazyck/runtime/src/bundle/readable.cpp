#include "bundle/readable.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "bundle/recipe.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr int k_most_links = 40;  // as the kernel follows
// Of the devices, /dev/shm belongs to all users.
constexpr const char* k_system_files[] = {"/proc",     "/sys",        "/dev/null",   "/dev/zero",
                                          "/dev/full", "/dev/random", "/dev/urandom"};

std::string real(const std::string& path) {
    char* const found = realpath(path.c_str(), nullptr);
    std::string out = found == nullptr ? "" : found;
    free(found);
    return out;
}

bool is_inside(const std::string& path, const std::string& directory) {
    const std::string lead = directory == "/" ? directory : directory + "/";
    return path == directory || path.compare(0, lead.size(), lead) == 0;
}

// Returns the directory that a compiler at `program` is installed in: the one above `bin`, unless
// that is a user's home or above one, which has much else.
std::string directory_around(const std::string& program) {
    const std::string own = directory_of(program);
    const std::string above = real(directory_of(own));
    const std::string home = real(environment("HOME"));
    const bool is_large = above == "/" || (!home.empty() && is_inside(home, above));
    return file_name_of(own) == "bin" && !is_large ? directory_of(own) : own;
}

std::string in_path(const std::string& name) {
    for (const std::string& directory : split(search_path(environment("PATH")), ":")) {
        const std::string candidate = directory + "/" + name;
        if (is_file(candidate) && access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return "";
}

// Returns the program that runs the script `program`, or an empty string if that is no script.
std::string interpreter_of(const std::string& program) {
    const std::string text = read_text(program, PATH_MAX);
    if (text.compare(0, 2, "#!") != 0) return "";
    const Strings words = split(text.substr(2, text.find('\n') - 2), " \t\r");
    if (words.empty()) return "";
    return file_name_of(words[0]) == "env" && words.size() > 1 ? in_path(words[1]) : words[0];
}

// Adds the directories around `program` and around each path that it is a link to.
void add_directories(std::string program, Strings& out) {
    for (int links = 0; links < k_most_links; ++links) {
        out.push_back(directory_around(program));
        char target[PATH_MAX];
        const ssize_t size = readlink(program.c_str(), target, sizeof target);
        if (size <= 0 || size == sizeof target) break;
        const std::string next(target, static_cast<std::size_t>(size));
        program = next[0] == '/' ? next : directory_of(program) + "/" + next;
    }
    const std::string found = real(program);  // where links among its directories lead
    if (!found.empty()) out.push_back(directory_around(found));
}

// Returns the programs that the words of `recipe` name as its compilers: its own, and the one that
// nvcc calls for the host, which it finds in PATH if no word names it.
Strings compilers_of(const RecipeRow& recipe, const std::string& home) {
    Strings named = compiler_of(recipe);
    if (!recipe.link.empty()) named.push_back(recipe.link[0]);
    const Strings& words = recipe.compile;
    bool has_host_compiler = recipe.toolchain != LAZYCK_TOOLCHAIN_CUDA;
    const auto add = [&](const std::string& host_compiler) {
        named.push_back(is_directory(host_compiler) ? host_compiler + "/c++" : host_compiler);
        has_host_compiler = true;
    };
    for (std::size_t i = 0; i < words.size(); ++i) {
        for (const std::string& option : split(LAZYCK_CCBIN_OPTIONS, " ")) {
            if (words[i] == option && i + 1 < words.size()) add(words[i + 1]);
            if (words[i].compare(0, option.size() + 1, option + "=") == 0) add(words[i].substr(option.size() + 1));
        }
    }
    for (std::size_t i = 0; i + 1 < recipe.env.size(); i += 2) {
        if (recipe.env[i] == LAZYCK_CCBIN_VARIABLE) add(recipe.env[i + 1]);
    }
    if (!has_host_compiler) named.insert(named.end(), {"gcc", "g++"});
    Strings found;
    for (const std::string& word : named) {
        if (word.empty() || word[0] == '-') continue;
        const bool is_in_home = word.rfind(LAZYCK_PH_TOOLCHAIN, 0) == 0;
        const std::string path = is_in_home ? home + word.substr(sizeof LAZYCK_PH_TOOLCHAIN - 1)
                                 : word.find('/') == std::string::npos ? in_path(word)
                                                                       : word;
        if (!path.empty() && path[0] == '/') found.push_back(path);
    }
    return found;
}

// Tells which paths are among `files` or below them, whatever links lead there.
class Places {
 public:
    explicit Places(const Strings& files) {
        std::transform(files.begin(), files.end(), std::back_inserter(m_places), real);
    }

    bool hold(const std::string& path) const {
        const std::string found = real(path);
        return std::any_of(m_places.begin(), m_places.end(),
                           [&](const std::string& each) { return !each.empty() && is_inside(found, each); });
    }

 private:
    Strings m_places;
};

// Returns the directories of `path`, a PATH, that are among `files` or below them.
std::string readable_path(const std::string& path, const Strings& files) {
    const Places places(files);
    Strings kept = split(search_path(path), ":");
    kept.erase(std::remove_if(kept.begin(), kept.end(), [&](const std::string& each) { return !places.hold(each); }),
               kept.end());
    return join(kept, ":");
}

}  // namespace

Readable::Readable(const RecipeRow& recipe, const std::string& home, const Strings& others) {
    if (!home.empty()) toolchain.push_back(home);
    for (const std::string& compiler : compilers_of(recipe, home)) {
        add_directories(compiler, toolchain);
        const std::string interpreter = interpreter_of(compiler);
        if (!interpreter.empty()) add_directories(interpreter, toolchain);
    }
    files = split(LAZYCK_SYSTEM_DIRECTORIES, " ");
    const Places system(files);
    std::sort(toolchain.begin(), toolchain.end());
    toolchain.erase(std::unique(toolchain.begin(), toolchain.end()), toolchain.end());
    toolchain.erase(
        std::remove_if(toolchain.begin(), toolchain.end(), [&](const std::string& each) { return system.hold(each); }),
        toolchain.end());
    files.insert(files.end(), std::begin(k_system_files), std::end(k_system_files));
    files.insert(files.end(), toolchain.begin(), toolchain.end());
    path = readable_path(environment("PATH"), files);
    files.insert(files.end(), others.begin(), others.end());
}

std::string Readable::advice_on(const std::string& output) const {
    const Places places(files);
    for (const std::string& word : split(output, " \t\n'\"`:;,()")) {
        if (word[0] != '/' || !is_file(word) || access(word.c_str(), R_OK) != 0 || places.hold(word)) continue;
        return "lazyck lets a compile read only the library's bundle, the system's directories and the toolchain's (" +
               visible(join(toolchain, ", ")) + "), and '" + visible(word) +
               "' is in none of them: install the compiler with all that it needs in one directory, or build the "
               "library again, and leave the source out of `--blobs` if that does not help";
    }
    return "";
}

}  // namespace lazyck::rt
