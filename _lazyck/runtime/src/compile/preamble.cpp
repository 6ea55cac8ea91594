// A preamble is a directory <cache>/.preambles/<digest of all that decides its contents>/, whose
// modification time tells its last use. It holds these files:
// - preamble<suffix of the source>: the text.
// - bundle: a link to the blobs' bundle.
// - pch/: one file for each arch and one for the host, from which clang takes the one that fits.
// - ready: the digests of the files in pch/, the blobs' directory and the text. It is written when
//   all files are there.
// - failed: marks that no preamble could be made or used.
#include "compile/preamble.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/hash.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/process.h"

namespace lazyck::rt {

namespace {

constexpr char k_ready[] = "/ready", k_compiled[] = "/pch", k_failed[] = "/failed";
constexpr char k_place[] = LAZYCK_CACHE_PREAMBLES;
constexpr std::size_t k_most_kept = 8;  // one of Composable Kernel takes 90 MB
constexpr std::time_t k_longest_kept = 7 * 24 * 3600, k_longest_given_up = 24 * 3600;

std::string suffix_of(const std::string& path) {
    const std::string name = file_name_of(path);
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? "" : name.substr(dot);
}

// Returns the contents of the file `ready`, or an empty string if a file cannot be read.
std::string ready_text(const std::string& directory, const std::string& source, std::string_view preamble) {
    const UniqueFd compiled = open_file(directory + k_compiled, O_RDONLY | O_DIRECTORY);
    Strings names = compiled ? names_in(compiled.get()) : Strings();
    std::sort(names.begin(), names.end());
    std::string text;
    for (const std::string& name : names) {
        MappedFile file;
        if (file.map(directory + k_compiled + "/" + name) != 0) return "";
        text += hash(file.data(), file.size()).hex() + " " + name + "\n";
    }
    return text + directory_of(source) + "\n" + std::string(preamble);
}

bool write_file(const std::string& path, std::string_view text) {
    const UniqueFd fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    return fd && write_all(fd.get(), text);
}

// Compiles one of the files. `side` holds the words that choose the host or the device. Returns an
// empty string, or what failed.
std::string compile_one(const PreambleRequest& request, const std::string& name, const Strings& archs,
                        const Strings& side) {
    const std::string output = request.directory + k_compiled + "/" + name;
    RecipeValues values = request.values;
    std::string own = directory_of(values.source);  // where includes in quotes are searched first
    if (!values.root.empty() && own.compare(0, values.root.size(), values.root) == 0)
        own.replace(0, values.root.size(), LAZYCK_BUNDLE_LINK);
    if (!values.root.empty()) values.root = LAZYCK_BUNDLE_LINK;
    values.source = request.directory + "/preamble" + suffix_of(values.source);
    values.object = output;
    values.archs = archs;
    const CompilePlan plan = make_plan(request.recipe, values);
    if (plan.compile.empty()) return "its recipe has no compile step";
    Command command;
    command.argv = plan.compile;
    const Strings first = {"-iquote", own};
    command.argv.insert(command.argv.begin() + 1, first.begin(), first.end());
    command.argv.insert(command.argv.end(), side.begin(), side.end());
    for (const char* word : {"-fsyntax-only", "-Xclang", "-emit-pch", "-Xclang", "-o", "-Xclang"}) {
        command.argv.emplace_back(word);
    }
    command.argv.push_back(output);
    command.environment = plan_environment(plan);
    const UniqueFd log = open_file(request.directory + "/log", O_RDWR | O_CREAT | O_APPEND, 0600);
    const UniqueFd where = open_file(request.directory, O_RDONLY | O_DIRECTORY);
    command.output = log.get();
    command.directory = where.get();
    write_all(log.get(), "$ " + shell_join(command.argv) + "\n");
    const Outcome outcome = run_command(command);
    if (outcome.ending == Ending::succeeded && is_file(output)) return "";
    return outcome.text + "; log: " + request.directory + "/log";
}

}  // namespace

bool has_debug_information(const RecipeRow& recipe) {
    return std::any_of(recipe.compile.begin(), recipe.compile.end(), [](const std::string& word) {
        return word.compare(0, 2, "-g") == 0 && word != "-g0" && word.compare(0, 4, "-gcc") != 0;
    });
}

bool has_preambles(const RecipeRow& recipe) {
    const bool is_clang = !recipe.compile.empty() && file_name_of(recipe.compile[0]).find("clang") != std::string::npos;
    return !recipe.link.empty() && (recipe.toolchain == LAZYCK_TOOLCHAIN_ROCM || is_clang);
}

std::string_view preamble_of(std::string_view source) {
    std::size_t end = 0;  // the end of the last include's line
    bool is_comment = false;
    for (std::size_t at = 0; at < source.size();) {
        const std::size_t newline = source.find('\n', at);
        if (newline == std::string_view::npos) break;
        std::string_view line = source.substr(at, newline - at);
        at = newline + 1;
        if (!line.empty() && line.back() == '\\') break;
        // This loop collects the part of the line that is outside comments.
        std::string rest;
        while (!line.empty()) {
            if (is_comment) {
                const std::size_t close = line.find("*/");
                is_comment = close == std::string_view::npos;
                line.remove_prefix(is_comment ? line.size() : close + 2);
            } else if (line.substr(0, 2) == "//") {
                line = {};
            } else if (line.substr(0, 2) == "/*") {
                is_comment = true;
                line.remove_prefix(2);
            } else {
                if (line[0] != ' ' && line[0] != '\t' && line[0] != '\r') rest += line[0];
                line.remove_prefix(1);
            }
            // A path may contain what looks like a comment.
            if (rest == "#include\"" || rest == "#include<") break;
        }
        if (rest.empty()) continue;
        if (rest != "#include\"" && rest != "#include<") break;
        if (line.find("/*") != std::string_view::npos) break;
        end = at;
    }
    return source.substr(0, end);
}

std::string make_preamble(const PreambleRequest& request) {
    const std::string text_path = request.directory + "/preamble" + suffix_of(request.values.source);
    const std::string& root = request.values.root;
    const bool is_linked =
        root.empty() || symlink(root.c_str(), (request.directory + "/" LAZYCK_BUNDLE_LINK).c_str()) == 0;
    if (!is_linked || mkdir((request.directory + k_compiled).c_str(), 0700) != 0 ||
        !write_file(text_path, request.text)) {
        return system_text(errno);
    }
    const Strings& archs = request.values.archs;
    std::string problem;
    if (request.recipe.toolchain == LAZYCK_TOOLCHAIN_ROCM) {
        for (const std::string& arch : archs) {
            if (problem.empty()) problem = compile_one(request, arch + ".pch", {arch}, {"--cuda-device-only"});
        }
        if (problem.empty()) problem = compile_one(request, "host.pch", archs, {"--cuda-host-only"});
    } else {
        problem = compile_one(request, "host.pch", archs, {});
    }
    if (!problem.empty()) return problem;
    const std::string ready = request.directory + k_ready;
    const std::string text = ready_text(request.directory, request.values.source, request.text);
    if (text.empty() || !write_file(ready + ".new", text) || rename((ready + ".new").c_str(), ready.c_str()) != 0)
        return system_text(errno);
    return "";
}

Strings preamble_words(const std::string& directory, const std::string& source) {
    const std::string ready = read_text(directory + k_ready);
    if (ready.empty()) return {};
    const std::string text = read_text(source);
    const std::string_view own = preamble_of(text);
    if (own.empty() || ready != ready_text(directory, source, own)) return {};
    const UniqueFd used = open_file(directory, O_RDONLY | O_DIRECTORY);
    if (used) futimens(used.get(), nullptr);
    return {"-Xclang", "-include-pch",
            "-Xclang", directory + k_compiled,
            "-Xclang", "-preamble-bytes=" + std::to_string(own.size()) + ",1"};
}

void give_up_preamble(const std::string& directory) {
    const UniqueFd place = open_file(directory, O_RDONLY | O_DIRECTORY);
    if (!place) return;
    remove_contents(place.get());
    static_cast<void>(open_at(place.get(), file_name_of(k_failed), O_WRONLY | O_CREAT));
}

bool is_given_up(const std::string& directory) {
    struct stat st;
    return lstat((directory + k_failed).c_str(), &st) == 0 && std::time(nullptr) - st.st_mtime < k_longest_given_up;
}

namespace {

// Returns the disk space in bytes that the file or directory `name` takes, with all that is in it.
std::uint64_t bytes_in(const Directory& directory, const std::string& name) {
    const auto st = directory.status_of(name);
    std::uint64_t bytes = st ? static_cast<std::uint64_t>(st->st_blocks) * 512 : 0;
    const auto below = st && S_ISDIR(st->st_mode) ? directory.find(name) : std::nullopt;
    for (const std::string& each : below ? below->names() : Strings()) bytes += bytes_in(*below, each);
    return bytes;
}

}  // namespace

std::vector<KeptPreamble> preambles_in(const Directory& root) {
    std::vector<KeptPreamble> found;
    const auto all = root.find(k_place);
    for (const std::string& name : all ? all->names() : Strings()) {
        const auto st = all->status_of(name);
        if (!st) continue;
        found.push_back({name, st->st_mtime, bytes_in(*all, name)});
    }
    std::sort(found.begin(), found.end(),
              [](const KeptPreamble& a, const KeptPreamble& b) { return a.last_use > b.last_use; });
    return found;
}

bool remove_preamble(const Directory& root, const std::string& name) {
    const auto all = root.find(k_place);
    if (all) remove_tree(all->fd(), name);
    return !all || !all->status_of(name);
}

void remove_unused_preambles(const Directory& root) {
    std::size_t number = 0;
    for (const KeptPreamble& each : preambles_in(root)) {
        if (++number > k_most_kept || std::time(nullptr) - each.last_use > k_longest_kept)
            remove_preamble(root, each.name);
    }
}

}  // namespace lazyck::rt
