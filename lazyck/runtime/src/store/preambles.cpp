// A preamble is a directory <cache>/.preambles/<digest of all that decides its contents>/, whose
// modification time tells its last use. It holds these files:
// - preamble<suffix of the source>: the text.
// - bundle: a link to the blobs' bundle.
// - pch/: one file for each arch and one for the host, from which clang takes the one that fits.
// - ready: the digests of the files in pch/, the blobs' directory and the text. It is written when
//   all files are there.
// - failed: marks that no preamble could be made or used.
#include "store/preambles.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/hash.h"
#include "bundle/readable.h"
#include "bundle/recipe.h"
#include "lazyck_abi.h"
#include "platform/lock.h"
#include "platform/messages.h"
#include "platform/process.h"
#include "platform/read_rule.h"
#include "store/store.h"

namespace lazyck::rt {

namespace {

constexpr char k_ready[] = "/ready", k_compiled[] = "/pch", k_failed[] = "/failed";
constexpr std::size_t k_most_kept = 8;  // one of Composable Kernel takes 90 MB
constexpr std::time_t k_longest_kept = 7 * 24 * 3600, k_longest_given_up = 24 * 3600;
constexpr unsigned k_depth_of_preambles = 1;
constexpr std::size_t k_least_sharing = 8;    // blobs that must share a preamble to make it worthwhile
constexpr std::size_t k_most_looked_at = 16;  // blobs examined to estimate how many share a preamble

struct PreambleRequest {
    RecipeRow recipe;
    RecipeValues values;  // its source is the preamble's own file
    SourceFile source;    // of a blob that begins with the preamble
    Strings places;       // of that source and its headers
    std::string text;
    std::string directory;  // the preamble's own; it exists
};

// Returns whether the recipe's compiler describes its sources for a debugger. For code from a
// preamble, it would give the preamble's path.
bool has_debug_information(const RecipeRow& recipe) {
    return std::any_of(recipe.compile.begin(), recipe.compile.end(), [](const std::string& word) {
        return word.compare(0, 2, "-g") == 0 && word != "-g0" && word.compare(0, 4, "-gcc") != 0;
    });
}

// Returns whether the recipe's compiler can make and use preambles, as far as its name tells.
bool has_preambles(const RecipeRow& recipe) {
    const bool is_clang = !recipe.compile.empty() && file_name_of(recipe.compile[0]).find("clang") != std::string::npos;
    return !recipe.link.empty() && (recipe.toolchain == LAZYCK_TOOLCHAIN_ROCM || is_clang);
}

// Returns what `source` begins with: its leading includes and the comments among them, in whole
// lines. The result is empty if there are none.
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
        const UniqueFd fd = open_at(compiled.get(), name, O_RDONLY | O_NONBLOCK);
        if (!fd || file.map(fd.get()) != 0) return "";
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
    values.object = output;
    values.archs = archs;
    const CompilePlan plan = make_plan(request.recipe, values);
    if (plan.compile.empty()) return "its recipe has no compile step";
    Command command;
    command.argv = plan.compile;
    const Strings first = {"-iquote",
                           directory_of(request.source.named)};  // where includes in quotes are searched first
    command.argv.insert(command.argv.begin() + 1, first.begin(), first.end());
    command.argv.insert(command.argv.end(), side.begin(), side.end());
    for (const char* word : {"-fsyntax-only", "-Xclang", "-emit-pch", "-Xclang", "-o", "-Xclang"}) {
        command.argv.emplace_back(word);
    }
    command.argv.push_back(output);
    const UniqueFd log = open_file(request.directory + "/log", O_RDWR | O_CREAT | O_APPEND, 0600);
    const UniqueFd where = open_file(request.directory, O_RDONLY | O_DIRECTORY);
    const Readable readable(request.recipe, request.values.toolchain, request.places);
    const ReadRule rule(readable.files, where.get());
    command.environment = plan_environment(plan, readable.path);
    command.read_rule = rule.fd();
    command.output = log.get();
    command.directory = where.get();
    write_all(log.get(), "$ " + shell_join(command.argv) + "\n");
    const Outcome outcome = run_command(command);
    if (outcome.ending == Ending::succeeded && is_file(output)) return "";
    return outcome.text + "; log: " + request.directory + "/log";
}

// Compiles the preamble, once for each arch and once for the host. Returns an empty string on
// success, else what failed.
std::string make_preamble(const PreambleRequest& request) {
    const std::string& root = request.source.root;
    const bool is_linked =
        root.empty() || symlink(root.c_str(), (request.directory + "/" LAZYCK_BUNDLE_LINK).c_str()) == 0;
    if (!is_linked || mkdir((request.directory + k_compiled).c_str(), 0700) != 0 ||
        !write_file(request.values.source, request.text)) {
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
    const std::string text = ready_text(request.directory, request.source.path, request.text);
    if (text.empty() || !write_file(ready + ".new", text) || rename((ready + ".new").c_str(), ready.c_str()) != 0)
        return system_text(errno);
    return "";
}

// Returns whether a preamble was given up within the last day.
bool is_given_up(const std::string& directory) {
    struct stat st;
    return lstat((directory + k_failed).c_str(), &st) == 0 && std::time(nullptr) - st.st_mtime < k_longest_given_up;
}

// Returns the disk space in bytes that the file or directory `name` takes, with all that is in it.
std::uint64_t bytes_in(const Directory& directory, const std::string& name) {
    const auto st = directory.status_of(name);
    std::uint64_t bytes = st ? static_cast<std::uint64_t>(st->st_blocks) * 512 : 0;
    const auto below = st && S_ISDIR(st->st_mode) ? directory.find(name) : std::nullopt;
    for (const std::string& each : below ? below->names() : Strings()) bytes += bytes_in(*below, each);
    return bytes;
}

std::string preamble_directory(const Cache& cache, const std::string& key) {
    return cache.root() + "/" LAZYCK_CACHE_PREAMBLES "/" + key;
}

std::string preamble_key(const ManifestRow& at, const Strings& archs, const SourceFile& source,
                         const std::string& compiler) {
    const std::string text = read_text(source.path);
    const std::string_view preamble = preamble_of(text);
    const std::uint32_t number = at.blob().recipe;
    const RecipeRow recipe = at.manifest.recipe(number);
    if (preamble.empty() || has_debug_information(recipe)) return "";
    std::string all;
    for (const Strings& part : {recipe.compile, recipe.arch_flags, recipe.env, archs}) all += shell_join(part) + "\n";
    for (const std::string& part :
         {compiler, source.root, directory_of(source.path), std::string(at.manifest.contents())})
        all += part + "\n";
    return hash(all.append(preamble)).hex();
}

}  // namespace

std::string Preambles::key_of(const ManifestRow& at, const Strings& archs) {
    std::string compiler = m_store.compilers->known(at);
    if (compiler.empty()) compiler = at.manifest.recipe_toolchain_id(at.blob().recipe);
    return preamble_key(at, archs, m_store.sources->find(at, *m_store.caches(at.manifest)->own()), compiler);
}

std::string Preambles::find(const Missing& missing, const SourceFile& source) {
    const std::string key = preamble_key(missing.at, missing.key.archs, source, missing.key.toolchain_id);
    const std::string directory = preamble_directory(missing.cache, key);
    if (key.empty() || !is_directory(directory)) return "";
    open_trusted_directory(directory, k_depth_of_preambles + 1);
    return directory;
}

std::string Preambles::compile(const ManifestRow& at, const Strings& archs) {
    const auto caches = m_store.caches(at.manifest);
    Cache& cache = *caches->own();
    const std::string compiler = m_store.compilers->name(at, cache);
    const std::string name = m_store.config.has_preambles ? key_of(at, archs) : "";
    if (name.empty())
        return "its source begins with no includes or has debug information, or " LAZYCK_ENV_PREAMBLES " forbids it";
    const Missing missing(m_store, at, archs, cache, compiler);
    const UniqueFd all = open_trusted_directory(cache.make_own_directory(LAZYCK_CACHE_PREAMBLES), k_depth_of_preambles);
    const std::string directory = preamble_directory(cache, name);
    // The lock is held until the preamble is made. Other processes compile without a preamble
    // meanwhile.
    const FileLock lock(cache.root() + "/" LAZYCK_CACHE_LOCKS "/preamble-" + name + ".lock");
    if (lock.state() != FileLock::State::held) return "another process makes it, or files cannot be locked here";
    const SourceFile source = m_store.sources->find(at, cache);
    if (is_given_up(directory)) return "it could not be made or used within the last day";
    if (!preamble_words(directory, source.path).empty()) return "";
    m_store.sources->check(source, at);
    PreambleRequest request;
    request.recipe = at.manifest.recipe(missing.blob.recipe);
    request.source = source;
    request.places = places_of(source, missing.blob);
    request.values.source = directory + "/preamble" + suffix_of(source.path);
    if (!source.root.empty()) request.values.root = LAZYCK_BUNDLE_LINK;
    request.values.toolchain = find_toolchain(request.recipe);
    request.values.archs = archs;
    request.text = preamble_of(read_text(source.path));
    request.directory = directory;
    PermitRequest wanted = missing.permit_request();
    const Subject& subject = wanted.subject;
    wanted.subject.words = "the headers of " + visible(missing.blob.name);
    const HeldPermit permit(m_store.permits);
    const HostPermit shared(wanted);
    log_message(Level::info, "precompiling " + subject.words + ", which others include, too ...",
                {"preamble", subject});
    remove_tree(all.get(), name);
    if (mkdirat(all.get(), name.c_str(), 0700) != 0) return system_text(errno);
    std::string problem = make_preamble(request);
    if (problem.empty()) problem = m_store.sources->find_change(source, at);
    if (!problem.empty()) give_up_preamble(directory);
    remove_unused_preambles(Directory::open(cache.root()));
    return problem;
}

bool Preambles::should_make(const ManifestRow& at, const Strings& archs) {
    const ManifestView& manifest = at.manifest;
    const std::uint32_t recipe = at.blob().recipe;
    // With one compile at a time, the next call would wait for the preamble.
    if (!m_store.config.has_preambles || m_store.config.jobs < 2 || !m_store.config.launcher.empty() ||
        m_store.jit.is_forbidden())
        return false;
    if (!manifest.has_slots() || !has_preambles(manifest.recipe(recipe))) return false;
    {
        const std::lock_guard<std::mutex> guard(m_store.mutex);
        if (!m_considered.emplace(&manifest, recipe).second) return false;
    }
    std::vector<std::uint32_t> alike;
    for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) {
        if (i != at.index && manifest.blob(i).recipe == recipe) alike.push_back(i);
    }
    if (alike.size() + 1 < k_least_sharing) return false;
    const std::string own = key_of(at, archs);
    const std::size_t step = std::max<std::size_t>(1, alike.size() / k_most_looked_at);
    std::size_t looked_at = 0, sharing = 0;
    for (std::size_t i = 0; i < alike.size(); i += step, ++looked_at)
        sharing += key_of({manifest, alike[i]}, archs) == own ? 1 : 0;
    return !own.empty() && sharing * alike.size() + looked_at >= k_least_sharing * looked_at;
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
    const UniqueFd opened = open_file(directory, O_RDONLY | O_DIRECTORY);
    if (!opened) return;
    remove_contents(opened.get());
    static_cast<void>(open_at(opened.get(), file_name_of(k_failed), O_WRONLY | O_CREAT));
}

std::vector<KeptPreamble> preambles_in(const Directory& root) {
    std::vector<KeptPreamble> found;
    const auto all = root.find(LAZYCK_CACHE_PREAMBLES);
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
    const auto all = root.find(LAZYCK_CACHE_PREAMBLES);
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
