#include "entrance/tool_make.h"

#include <fcntl.h>
#include <regex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
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

// The service may read what is made as another user.
void move_to(const char* target, const std::string& path, mode_t mode) {
    if (std::rename(path.c_str(), target) == 0 ? chmod(target, mode) != 0 : errno != ENOENT)
        fail_system("cannot make '" + std::string(target) + "'", errno);
}

constexpr double k_version_seconds = 60;
constexpr std::size_t k_longest_version = 64 << 10;

#define NUMBER "([0-9][A-Za-z0-9_.]*)"

// Lines of `--version` that tell paths or dates rather than a compiler.
constexpr char k_paths_or_dates[] =
    "^(InstalledDir|Configured with|COLLECT_|Configuration file|Built on)|(^|[[:space:]:=])/[^[:space:]]";

// What tells the kind of a compiler. The last group is its version number.
constexpr const char* k_kinds[][2] = {
    {"clang", "clang version " NUMBER},
    {"nvcc", "release [0-9.]+, V" NUMBER},
    {"gcc", "^[^[:space:]]*(cc|[gc][+][+])[^[:space:]]* [(].*[)] " NUMBER},
    {"hip", "HIP version: " NUMBER},
    {"llvm", "LLVM version " NUMBER},
};

// Returns whether `text` has a match of `pattern`, and sets `group` to what the last group of the
// first match holds.
bool finds(const std::string& text, const char* pattern, int flags, std::string& group) {
    regex_t regex;
    std::array<regmatch_t, 3> groups;
    if (regcomp(&regex, pattern, REG_EXTENDED | flags) != 0) fail("lazyck-rt: no memory for a regular expression");
    const bool is_found = regexec(&regex, text.c_str(), groups.size(), groups.data(), 0) == 0;
    const regmatch_t& last = groups[regex.re_nsub];
    if (is_found && last.rm_so >= 0) group = text.substr(last.rm_so, last.rm_eo - last.rm_so);
    regfree(&regex);
    return is_found;
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
    constexpr char k_white[] = " \t\r\v\f";
    Strings kept;
    std::string number;
    for (const std::string& line : split(version_text, "\n\r\v\f")) {
        const std::size_t begin = line.find_first_not_of(k_white);
        if (begin == std::string::npos) continue;
        kept.push_back(line.substr(begin, line.find_last_not_of(k_white) + 1 - begin));
        if (finds(kept.back(), k_paths_or_dates, REG_ICASE, number)) kept.pop_back();
    }
    std::string text = join(kept, "\n");
    const auto* const kind = std::find_if(std::begin(k_kinds), std::end(k_kinds),
                                          [&](const auto& each) { return finds(text, each[1], REG_NEWLINE, number); });
    std::string name = kind == std::end(k_kinds) ? "cc" : (*kind)[0] + number;
    // g++ and c++ are names of one compiler.
    std::string rest;
    if (name.rfind("gcc", 0) == 0 && finds(text, "^[^[:space:]]+( [(].*)", 0, rest)) text = "gcc" + rest;
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
    config.profile.clear();
    config.trace.clear();
}

ActionCache::~ActionCache() {
    const UniqueFd here = open_file(directory_of(m_root), O_RDONLY | O_DIRECTORY);
    if (here) remove_tree(here.get(), file_name_of(m_root));
}

void ActionCache::deliver(const std::string& path, double seconds, long peak_kib) const {
    if (mkdir(LAZYCK_MAKE_DIRECTORY, 0755) != 0 && errno != EEXIST)
        fail_system("cannot make '" LAZYCK_MAKE_DIRECTORY "'", errno);
    move_to(LAZYCK_MAKE_ENTRY, path, 0755);
    move_to(LAZYCK_MAKE_LOG, path.substr(0, path.size() - 3) + ".log", 0644);
    const UniqueFd cost = open_file(LAZYCK_MAKE_COST, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (!cost || !write_all(cost.get(), decimal(seconds, 3) + " " + std::to_string(peak_kib) + "\n"))
        fail_system("cannot write the cost", errno);
}

}  // namespace lazyck::rt
