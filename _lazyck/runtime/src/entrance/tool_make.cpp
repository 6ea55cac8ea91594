#include "entrance/tool_make.h"

#include <fcntl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <set>
#include <string_view>

#include "base/failure.h"
#include "base/hash.h"
#include "base/text.h"
#include "bundle/recipe.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/process.h"

namespace lazyck::rt {

namespace {

constexpr char k_made[] = "made";

// The service may read what is made as another user.
void move_to_made(const std::string& path, const char* name, mode_t mode) {
    const std::string to = std::string(k_made) + "/" + name;
    if (std::rename(path.c_str(), to.c_str()) == 0 ? chmod(to.c_str(), mode) != 0 : errno != ENOENT)
        fail_system("cannot make '" + to + "'", errno);
}

constexpr double k_version_seconds = 60;
constexpr std::size_t k_longest_version = 64 << 10;

bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_figure(char c) { return c >= '0' && c <= '9'; }
bool is_of_number(char c) {
    return is_figure(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

// Returns whether a line of `--version` tells a place or a date rather than a compiler.
bool tells_place(const std::string& line) {
    for (const char* lead : {"InstalledDir", "Configured with", "COLLECT_", "Configuration file", "Built on"}) {
        if (strncasecmp(line.c_str(), lead, std::strlen(lead)) == 0) return true;
    }
    for (std::size_t i = 0; i + 1 < line.size(); ++i) {
        const bool begins = i == 0 || is_white(line[i - 1]) || line[i - 1] == ':' || line[i - 1] == '=';
        if (line[i] == '/' && begins && !is_white(line[i + 1])) return true;
    }
    return false;
}

// Returns the version number that begins at `at`, or an empty string.
std::string number_at(const std::string& text, std::size_t at) {
    std::size_t end = at;
    if (at < text.size() && is_figure(text[at]))
        end = std::find_if_not(text.begin() + at, text.end(), is_of_number) - text.begin();
    return text.substr(at, end - at);
}

// Returns the first version number that follows `lead`, or an empty string.
std::string number_behind(const std::string& text, std::string_view lead) {
    std::string found;
    for (std::size_t at = text.find(lead); at != std::string::npos && found.empty(); at = text.find(lead, at + 1))
        found = number_at(text, at + lead.size());
    return found;
}

// Returns NUMBER of nvcc's "release 13.0, V<NUMBER>", or an empty string.
std::string nvcc_number(const std::string& text) {
    constexpr std::string_view k_lead = "release ";
    for (std::size_t at = text.find(k_lead); at != std::string::npos; at = text.find(k_lead, at + 1)) {
        const std::size_t begin = at + k_lead.size();
        const std::size_t end = text.find_first_not_of("0123456789.", begin);
        if (end == std::string::npos || end == begin || text.compare(end, 3, ", V") != 0) continue;
        const std::string found = number_at(text, end + 3);
        if (!found.empty()) return found;
    }
    return "";
}

// Returns NUMBER of "g++ (Debian ...) <NUMBER>", whichever of gcc's names the line begins with, or
// an empty string.
std::string gcc_number(const Strings& lines) {
    for (const std::string& line : lines) {
        const std::size_t end = std::find_if(line.begin(), line.end(), is_white) - line.begin();
        const std::string name = line.substr(0, end);
        const bool is_gcc = name.find("cc") != std::string::npos || name.find("g++") != std::string::npos ||
                            name.find("c++") != std::string::npos;
        if (!is_gcc || line.compare(end, 2, " (") != 0) continue;
        for (std::size_t at = line.rfind(") "); at != std::string::npos && at > end; at = line.rfind(") ", at - 1)) {
            const std::string found = number_at(line, at + 2);
            if (!found.empty()) return found;
        }
    }
    return "";
}

// Returns the words that start the compiler of a recipe, with placeholders.
Strings compiler_of(const RecipeRow& recipe) {
    const Strings& words = recipe.compile;
    auto begin = words.begin();
    // lazyck-unit, a program of the bundle, is given the compiler behind `--`.
    if (!words.empty() && words[0].rfind(LAZYCK_PH_ROOT "/", 0) == 0) {
        begin = std::find(words.begin(), words.end(), "--");
        if (begin != words.end()) ++begin;
    }
    auto end = std::find(begin, words.end(), LAZYCK_PH_ARCHS);
    if (end == words.end() || end == begin) end = begin == words.end() ? begin : begin + 1;
    return {begin, end};
}

std::string version_text_of(const RecipeRow& recipe, const std::string& root) {
    RecipeRow asking = recipe;
    asking.compile = compiler_of(recipe);
    asking.compile.emplace_back("--version");
    asking.link.clear();
    RecipeValues values;
    values.root = root;
    values.toolchain = find_toolchain(recipe);
    const CompilePlan plan = make_plan(asking, values);
    const UniqueFd said(memfd_create("lazyck-version", MFD_CLOEXEC)),
        errors(memfd_create("lazyck-errors", MFD_CLOEXEC));
    if (!said || !errors) fail_system("cannot ask the compiler for its version", errno);
    Command command;
    command.argv = plan.compile;
    command.environment = plan_environment(plan);
    command.output = said.get();
    command.errors = errors.get();
    command.timeout_seconds = k_version_seconds;
    const Outcome outcome = run_command(command);
    if (outcome.ending != Ending::succeeded) {
        const std::string why = read_text(errors.get(), 0, k_longest_version);
        fail("lazyck: `" + shell_join(plan.compile) + "` ended with " + outcome.text +
             (why.empty() ? "" : ":\n" + why) + "; this machine cannot compile for this library");
    }
    return read_text(said.get(), 0, k_longest_version);
}

// Returns the identity that a compiler's `--version` output gives, such as
// "gcc12.2.0-8c1f0a3b5d7e".
std::string identity_in(std::string_view version_text) {
    Strings kept;
    for (std::string line : split(version_text, "\n\r\v\f")) {
        const auto begin = std::find_if_not(line.begin(), line.end(), is_white);
        const auto end = std::find_if_not(line.rbegin(), std::make_reverse_iterator(begin), is_white).base();
        line = std::string(begin, end);
        if (!line.empty() && !tells_place(line)) kept.push_back(line);
    }
    std::string text = join(kept, "\n");
    const std::pair<const char*, std::string> kinds[] = {{"clang", number_behind(text, "clang version ")},
                                                         {"nvcc", nvcc_number(text)},
                                                         {"gcc", gcc_number(kept)},
                                                         {"hip", number_behind(text, "HIP version: ")},
                                                         {"llvm", number_behind(text, "LLVM version ")}};
    std::string name = "cc";
    for (const auto& [kind, number] : kinds) {
        if (number.empty()) continue;
        name = kind + number;
        // g++ and c++ are names of one compiler.
        const std::size_t blank = text.find(' ');
        if (std::strcmp(kind, "gcc") == 0 && blank != 0 && text.compare(blank, 2, " (") == 0)
            text.replace(0, blank, "gcc");
        break;
    }
    return name + "-" + sha256_hex(text.data(), text.size()).substr(0, 12);
}

}  // namespace

void check_compiler(const RecipeRow& recipe, const std::string& root) {
    const std::string found = identity_in(version_text_of(recipe, root));
    if (found == recipe.toolchain_id) return;
    fail("lazyck: the " + recipe.toolchain + " compiler of this machine is " + found +
         ", but the library was built with " + recipe.toolchain_id + ": its code may differ, so that it is not used");
}

void offer_toolchain(const ManifestView& manifest, const std::string& path) {
    std::set<std::uint32_t> recipes;
    for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) recipes.insert(manifest.blob(i).recipe);
    for (const std::uint32_t recipe : recipes) {
        for (const std::string& variable : manifest.recipe(recipe).home_env) setenv(variable.c_str(), path.c_str(), 1);
    }
}

ActionCache::ActionCache(Config& config) {
    std::string name = absolute("cache-XXXXXX");
    if (mkdtemp(name.data()) == nullptr) fail_system("cannot make '" + name + "'", errno);
    m_root = name;
    config.cache_dir = name;
    config.cache_path.clear();
    config.cache_max_kib = 0;
    config.has_remote = false;
    config.jit = Jit::on;
    // The service decides how many actions a machine runs at a time.
    config.mem_per_job_kib = 0;
    config.record.clear();
    config.trace.clear();
}

ActionCache::~ActionCache() {
    const UniqueFd here = open_file(directory_of(m_root), O_RDONLY | O_DIRECTORY);
    if (here) remove_tree(here.get(), file_name_of(m_root));
}

void ActionCache::deliver(const std::string& path, double seconds, long peak_kib) const {
    if (mkdir(k_made, 0755) != 0 && errno != EEXIST) fail_system(std::string("cannot make '") + k_made + "'", errno);
    move_to_made(path, "entry", 0755);
    move_to_made(path.substr(0, path.size() - 3) + ".log", "log", 0644);
    const UniqueFd cost = open_file(std::string(k_made) + "/cost", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (!cost || !write_all(cost.get(), decimal(seconds, 3) + " " + std::to_string(peak_kib) + "\n"))
        fail_system("cannot write the cost", errno);
}

}  // namespace lazyck::rt
