// lazyck-rt runs the runtime's own cache and compiler code from the command line, for
// `lazyck prebuild`.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/text.h"
#include "bundle/arch.h"
#include "bundle/manifest_view.h"
#include "cache/cache.h"
#include "cache/entry.h"
#include "cache/packs.h"
#include "entrance/tool_make.h"
#include "lazyck_abi.h"
#include "platform/config.h"
#include "platform/cpu.h"
#include "platform/elf_view.h"
#include "platform/files.h"
#include "platform/messages.h"
#include "platform/threads.h"
#include "store/store.h"
#include "store/trim.h"

namespace {

using namespace lazyck::rt;

constexpr char k_usage[] =
    "usage: lazyck-rt compile|make|limit|status|path|kernels|packs|preambles|preamble --from LIBRARY|MANIFEST "
    "[--library "
    "LIBRARY]\n"
    "                 [--arch ARCH]... [--blob-list FILE] [--quiet] [--again] [--] [BLOB]...\n"
    "  compile   make sure that the cache has the blobs; with --again, whatever other caches have\n"
    "  make      compile one blob in a cache of its own, by the library's compiler and no other, and leave "
    "`made/entry`,\n"
    "            `made/log` and `made/cost`: the action of a compile service. --toolchain DIR: a home for it\n"
    "  status    one JSON line for each blob: name, arch, path, cached; key and entry: its key and its path in any "
    "cache;\n"
    "            recipe: the number of the recipe for this CPU\n"
    "  path      where each blob's entry is or would be, one per line\n"
    "  kernels   one JSON line for each kernel of those blobs whose host unit is cached: blob, name, symbol\n"
    "  packs     one JSON line for each installed pack: name, version, root; problem: why it is not used, or empty\n"
    "  preambles one JSON line for each blob: name; preamble, equal for those that can share a precompiled one, or "
    "null\n"
    "  preamble  makes the precompiled one of a blob in the cache, for compile to use\n"
    "  limit     after the name of one blob, a command: runs it as a compile of the blob is run\n"
    "Without blobs: all. Several --arch make one entry for all of them together.\n"
    "       lazyck-rt cpu\n"
    "  this CPU's features; then each level of its kind, the highest first: the compiler's option, and features\n"
    "       lazyck-rt verify CACHE\n"
    "  reads every entry; one JSON line for each, and for each directory that is refused: path, problem. Status 1 if\n"
    "  there is a problem\n"
    "       lazyck-rt trim CACHE [--max-size BYTES] [--older-than SECONDS] [--only FILE] [--dry-run]\n"
    "  removes the least recently used entries; a JSON line for each removed entry, and one with the sums.\n"
    "  FILE lists the paths of the entries, or of the directories of entries, that may go, one per line\n";

std::string row(const std::vector<std::pair<const char*, std::string>>& members) {
    JsonObject line;
    for (const auto& [name, literal] : members) line.add(name, literal);
    return line.text() + "\n";
}

struct ToolOptions {
    std::string verb;
    std::string from;
    std::string library;
    std::string archs;
    std::string toolchain;  // for `make`: a home that came with the action
    Strings blobs;
    bool is_quiet = false;
    bool is_again = false;
    bool has_blobs = false;
};

ToolOptions parse_options(int argc, char** argv) {
    ToolOptions options;
    if (argc < 2) fail(k_usage);
    options.verb = argv[1];
    const Strings verbs = {LAZYCK_RT_COMPILE,   LAZYCK_RT_MAKE,     LAZYCK_RT_STATUS,
                           LAZYCK_RT_PATH,      LAZYCK_RT_KERNELS,  LAZYCK_RT_PACKS,
                           LAZYCK_RT_PREAMBLES, LAZYCK_RT_PREAMBLE, LAZYCK_RT_LIMIT};
    if (std::find(verbs.begin(), verbs.end(), options.verb) == verbs.end()) fail(k_usage);
    const std::unordered_map<std::string, std::string*> texts = {{LAZYCK_OPTION_FROM, &options.from},
                                                                 {LAZYCK_OPTION_LIBRARY, &options.library},
                                                                 {LAZYCK_OPTION_TOOLCHAIN, &options.toolchain}};
    bool takes_options = true;
    for (int i = 2; i < argc; ++i) {
        const std::string word = argv[i];
        if (!takes_options || word[0] != '-') {
            options.blobs.push_back(word);
            options.has_blobs = true;
            continue;
        }
        const auto value = [&]() -> std::string {
            if (i + 1 >= argc) fail("lazyck-rt: " + word + " needs a value\n" + k_usage);
            return argv[++i];
        };
        const auto text = texts.find(word);
        if (text != texts.end()) {
            *text->second = value();
        } else if (word == LAZYCK_OPTION_ARCH) {
            options.archs += value() + ";";
        } else if (word == LAZYCK_OPTION_BLOB_LIST) {
            const std::string file = value();
            if (!is_file(file)) fail("lazyck-rt: no file '" + file + "'");
            for (std::string& name : split(read_text(file), "\n")) options.blobs.push_back(std::move(name));
            options.has_blobs = true;
        } else if (word == LAZYCK_OPTION_QUIET) {
            options.is_quiet = true;
        } else if (word == LAZYCK_OPTION_AGAIN) {
            options.is_again = true;
        } else if (word == "--") {
            takes_options = false;
            options.has_blobs = true;
        } else {
            fail("lazyck-rt: unknown option " + word + "\n" + k_usage);
        }
    }
    if (options.from.empty()) options.from = options.library;
    if (options.from.empty()) fail(k_usage);
    return options;
}

// A lazy library with a manifest, or a separate manifest file.
class ToolSource {
 public:
    // Throws CompileError if it cannot be read.
    explicit ToolSource(const std::string& path) : m_path(absolute(path)) {
        // The path may be a link: users may name a library by one.
        if (const int error = m_file.read(m_path, true)) fail_system("cannot read '" + m_path + "'", error);
        const ElfView elf(m_file.data(), m_file.size());
        m_is_library = elf.problem().empty();
        const auto section = elf.section(LAZYCK_MANIFEST_SECTION);
        if (m_is_library && !section) fail("lazyck: '" + m_path + "' is not a lazy library");
        m_manifest = section ? ManifestView(m_file.data() + section->first, section->second, m_path)
                             : ManifestView(m_file.data(), m_file.size(), m_path);
    }

    const ManifestView& manifest() const { return m_manifest; }

    // `library` is the path of the library that a separate manifest file is for, if known.
    LibraryPaths paths(const Config& config, std::string library) const {
        if (m_is_library || !library.empty()) {
            library = library.empty() ? m_path : absolute(library);
            return {library, bundle_roots(config.root, m_manifest.root(), library)};
        }
        // A bundle is <directory of the library>/lazyck, and its manifest is
        // <bundle>/<name>/manifest.
        const std::string own_root = directory_of(directory_of(m_path));
        Strings roots = {config.root.empty() ? own_root : config.root};
        if (config.root.empty() && m_manifest.root()[0] == '/') roots.emplace_back(m_manifest.root());
        for (const std::string& root : roots) {
            if (!is_file(library)) library = library_in(directory_of(root), m_manifest);
        }
        return {library, roots};
    }

 private:
    std::string m_path;
    MappedFile m_file;
    bool m_is_library = false;
    ManifestView m_manifest;
};

// Refers to a row of the manifest, or to one of the parts of a blob, and to one of its entries.
struct Chosen {
    std::shared_ptr<const ManifestView> manifest;
    std::uint32_t index;
    Strings archs;

    ManifestRow at() const { return {*manifest, index}; }
};

// The blobs, and the parts of blobs, that the options name. The kernels of a blob are read from its
// host unit. With `makes_hosts`, a host unit that no cache has is compiled.
class Choice {
 public:
    Choice(const ManifestView& manifest, Store& store, Strings archs, bool makes_hosts)
        : m_manifest(manifest), m_store(store), m_archs(std::move(archs)), m_makes_hosts(makes_hosts) {}

    // Returns the entries of what is chosen. Throws CompileError for a name that no blob has.
    std::vector<Chosen> entries(const ToolOptions& options) {
        const auto own = std::make_shared<const ManifestView>(m_manifest);
        std::unordered_map<std::string, std::uint32_t> by_name;
        for (std::uint32_t i = 0; i < m_manifest.blob_count(); ++i) {
            if (options.has_blobs) {
                by_name.emplace(m_manifest.blob(i).name, i);
            } else {
                add(own, i);
            }
        }
        for (const std::string& name : options.blobs) {
            const auto found = by_name.find(name);
            if (found != by_name.end()) {
                add(own, found->second);
                continue;
            }
            const auto blob = by_name.find(name.substr(0, name.rfind('.')));
            const bool is_part = blob != by_name.end() && m_manifest.has_parts(blob->second);
            if (!is_part || !add_part(blob->second, name))
                fail("lazyck: '" + options.from + "' has no blob '" + visible(name) + "'");
        }
        return std::move(m_chosen);
    }

    // Returns JSON lines for the kernels of a blob, or no lines if its host unit is not cached.
    std::string kernels_of(std::uint32_t index) const {
        std::string lines;
        const std::shared_ptr<const ManifestView> parts = parts_of(index);
        for (std::uint32_t i = ManifestView::k_first_kernel; i < parts->blob_count(); ++i) {
            const BlobRow kernel = parts->blob(i);
            lines += row({{LAZYCK_ROW_BLOB, json_string(m_manifest.blob(index).name)},
                          {LAZYCK_ROW_NAME, json_string(kernel.name)},
                          {LAZYCK_ROW_SYMBOL, json_string(parts->symbols_of(kernel).front())}});
        }
        return lines;
    }

 private:
    void add(const std::shared_ptr<const ManifestView>& manifest, std::uint32_t index) {
        const BlobRow row = manifest->blob(index);
        for (Strings& archs : archs_of_entries(row, archs_for(*manifest, row.recipe, m_archs, false)))
            m_chosen.push_back({manifest, index, std::move(archs)});
    }

    // Adds the part of blob `index` called `name`. Returns false if it has none of that name. If
    // the host unit is not cached, the part is an unknown kernel, which is in no cache.
    bool add_part(std::uint32_t index, const std::string& name) {
        auto& parts = m_parts[index];
        if (!parts) parts = parts_of(index);
        for (std::uint32_t i = 0; i < parts->blob_count(); ++i) {
            if (parts->blob(i).name != name) continue;
            add(parts, i);
            return true;
        }
        if (parts->blob_count() > ManifestView::k_first_kernel || m_makes_hosts) return false;
        add(std::make_shared<ManifestView>(m_manifest.unknown_kernel(index, name)), 0);
        return true;
    }

    std::shared_ptr<const ManifestView> parts_of(std::uint32_t index) const {
        const ManifestView plain = m_manifest.parts(index, {});
        const Strings archs = archs_for(plain, plain.blob(ManifestView::k_host_unit).recipe, m_archs, false);
        std::optional<Entry> host = m_makes_hosts ? m_store.obtain({plain, ManifestView::k_host_unit}, archs)
                                                  : m_store.find({plain, ManifestView::k_host_unit}, archs);
        const std::string text = host ? read_text(host->path) : "";
        const std::size_t at = text.find(LAZYCK_KERNELS_VERSION "\n");
        const std::string table = at == std::string::npos ? "" : text.c_str() + at;
        return std::make_shared<ManifestView>(m_manifest.parts(index, lines_of_table(table)));
    }

    const ManifestView& m_manifest;
    Store& m_store;
    const Strings m_archs;
    const bool m_makes_hosts;
    std::unordered_map<std::uint32_t, std::shared_ptr<const ManifestView>> m_parts;
    std::vector<Chosen> m_chosen;
};

int list_packs(const std::string& library, const ManifestView& manifest) {
    std::string lines;
    for (const Pack& pack : find_packs(library, manifest)) {
        const std::string problem = join(explain_mismatches({pack}, library, manifest), "");
        lines += row({{LAZYCK_ROW_NAME, json_string(pack.name)},
                      {LAZYCK_ROW_VERSION, json_string(pack.version)},
                      {LAZYCK_ROW_ROOT, json_string(pack.root)},
                      {LAZYCK_ROW_PROBLEM, json_string(problem)}});
    }
    return write_all(1, lines) ? 0 : 1;
}

// Compiles the chosen blobs, with `is_again` also those that a cache has. Returns the exit status:
// 2 if the compiler itself refused each of those that failed, and would refuse it again.
int compile(Store& store, const std::vector<Chosen>& blobs, bool is_again) {
    const auto get = is_again ? &Store::fill : &Store::obtain;
    std::atomic<int> failures{0}, refusals{0};
    for_each_in_parallel(blobs.size(), store.config.jobs, [&](std::size_t i) {
        try {
            (store.*get)(blobs[i].at(), blobs[i].archs);
        } catch (const lazyck::CompileError& e) {
            write_all(2, std::string(e.what()) + "\n");
            refusals += dynamic_cast<const PermanentFailure*>(&e) != nullptr ? 1 : 0;
            ++failures;
        }
    });
    return failures == 0 ? 0 : failures == refusals ? 2 : 1;
}

// Compiles the one blob and leaves what is known of it for the compile service.
int make(const ActionCache& cache, Store& store, const Chosen& blob) {
    const RecipeRow recipe = blob.manifest->recipe(blob.at().blob().recipe);
    const std::string compiler = store.compilers->name(blob.at(), *store.caches(*blob.manifest)->own());
    if (compiler != recipe.toolchain_id)
        fail("lazyck: the " + recipe.toolchain + " compiler of this machine is " + compiler +
             ", but the library was built with " + recipe.toolchain_id +
             ": its code may differ, so that it is not used");
    const int status = compile(store, {blob}, false);
    std::string path;
    store.is_cached(blob.at(), blob.archs, path);
    const Guess cost = store.expected_cost(blob.at(), blob.archs);
    cache.deliver(path, cost.blob.seconds, cost.blob.peak_kib);
    return status;
}

// Runs the command behind the name of a blob.
int limit(const ManifestView& manifest, const LibraryPaths& paths, Strings words) {
    for (std::uint32_t i = 0; i < manifest.blob_count() && words.size() > 1; ++i) {
        if (words[0] != manifest.blob(i).name || paths.roots.empty()) continue;
        words.erase(words.begin());
        return run_limited(manifest, manifest.blob(i), paths.roots[0], words);
    }
    fail(k_usage);
}

int run(const ToolOptions& options) {
    if (options.is_quiet) silence();
    const ToolSource source(options.from);
    if (!options.toolchain.empty()) offer_toolchain(source.manifest(), absolute(options.toolchain));
    Config config = read_config();
    config.compile_service.clear();  // `prebuild build --executor` asks one
    std::optional<ActionCache> action;
    if (options.verb == LAZYCK_RT_MAKE) {
        action.emplace(config);
        assume_any_cpu();
    }
    const ManifestView& manifest = source.manifest();
    const LibraryPaths paths = source.paths(config, options.library);
    if (options.verb == LAZYCK_RT_PACKS) return list_packs(paths.library, manifest);
    if (options.verb == LAZYCK_RT_LIMIT) return limit(manifest, paths, options.blobs);
    Store store(config, paths);
    const Strings asked = options.archs.empty() ? config.archs : parse_archs(options.archs, LAZYCK_OPTION_ARCH);
    Choice choice(manifest, store, asked, options.verb == LAZYCK_RT_COMPILE || options.verb == LAZYCK_RT_MAKE);
    const std::vector<Chosen> blobs = choice.entries(options);
    if ((options.verb == LAZYCK_RT_PREAMBLE || options.verb == LAZYCK_RT_MAKE) && blobs.size() != 1) fail(k_usage);
    if (options.verb == LAZYCK_RT_PREAMBLE) {
        const std::string problem = store.preambles.compile(blobs[0].at(), blobs[0].archs);
        if (!problem.empty()) fail("lazyck: no precompiled preamble: " + problem);
        return 0;
    }
    if (options.verb == LAZYCK_RT_COMPILE) return compile(store, blobs, options.is_again);
    if (options.verb == LAZYCK_RT_MAKE) return make(*action, store, blobs[0]);
    std::string out;
    for (const Chosen& blob : blobs) {
        if (options.verb == LAZYCK_RT_KERNELS) {
            if (manifest.has_parts(blob.index)) out += choice.kernels_of(blob.index);
            continue;
        }
        const Strings& archs = blob.archs;
        const std::string name = json_string(blob.at().blob().name);
        if (options.verb == LAZYCK_RT_PREAMBLES) {
            const std::string preamble = store.preambles.key_of(blob.at(), archs);
            out += row(
                {{LAZYCK_ROW_NAME, name}, {LAZYCK_ROW_PREAMBLE, preamble.empty() ? "null" : json_string(preamble)}});
            continue;
        }
        std::string path;
        EntryKey key;
        const bool is_cached = store.is_cached(blob.at(), archs, path, &key);
        if (options.verb == LAZYCK_RT_PATH) {
            out += path + "\n";
            continue;
        }
        out += row({{LAZYCK_ROW_NAME, name},
                    {LAZYCK_ROW_ARCH, json_string(join(archs, "+"))},
                    {LAZYCK_ROW_PATH, json_string(path)},
                    {LAZYCK_ROW_CACHED, is_cached ? "true" : "false"},
                    {LAZYCK_ROW_KEY, json_string(key.id().hex())},
                    {LAZYCK_ROW_ENTRY, json_string(Cache::entry_name(key))},
                    {LAZYCK_ROW_RECIPE, std::to_string(manifest.recipe_here(blob.at().blob().recipe))}});
    }
    return write_all(1, out) ? 0 : 1;
}

int run_cpu() {
    std::string lines = cpu_features() + "\n";
    for (const auto& [option, features] : cpu_levels()) lines += option + " " + features + "\n";
    return write_all(1, lines) ? 0 : 1;
}

int run_verify(const std::string& root) {
    bool is_good = true;
    const auto tell = [&](const std::string& path, const std::string& problem) {
        is_good &= problem.empty();
        write_all(1, row({{LAZYCK_ROW_PATH, json_string(path)}, {LAZYCK_ROW_PROBLEM, json_string(problem)}}));
    };
    const auto verify = [&](const Directory& directory, const std::string& name) {
        tell(directory.path() + "/" + name, find_damage(directory, name));
    };
    for_each_entry(root, verify, tell);
    return is_good ? 0 : 1;
}

int run_trim(const Strings& words) {
    TrimRequest request;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const bool has_value = i + 1 < words.size();
        if (words[i] == LAZYCK_OPTION_DRY_RUN) {
            request.is_dry = true;
        } else if (words[i] == LAZYCK_OPTION_MAX_SIZE && has_value) {
            request.most_bytes = std::stoull(words[++i]);
        } else if (words[i] == LAZYCK_OPTION_OLDER_THAN && has_value) {
            const std::optional<double> seconds = number_in(words[++i]);
            if (!seconds) fail(k_usage);
            request.oldest_seconds = *seconds;
        } else if (words[i] == LAZYCK_OPTION_ONLY && has_value) {
            const Strings paths = split(read_text(words[++i]), "\n");
            request.only.emplace(paths.begin(), paths.end());
        } else {
            fail(k_usage);
        }
    }
    const TrimOutcome outcome =
        trim(Directory::open(cache_root(absolute(words.at(0)), "trim ")), request, [](const TrimmedEntry& entry) {
            write_all(1, row({{LAZYCK_ROW_PATH, json_string(entry.path)},
                              {LAZYCK_ROW_BYTES, std::to_string(entry.bytes)},
                              {LAZYCK_ROW_LAST_USE, decimal(entry.last_use, 3)}}));
        });
#define LAZYCK_SUM(name) {#name, std::to_string(outcome.name)},
    return write_all(1, row({LAZYCK_TRIM_SUMS(LAZYCK_SUM)})) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const std::string verb = argc > 1 ? argv[1] : "";
        const Strings words(argv + std::min(argc, 2), argv + argc);
        if (verb == LAZYCK_RT_VERIFY && words.size() == 1) return run_verify(cache_root(absolute(words[0]), "verify "));
        if (verb == LAZYCK_RT_TRIM && !words.empty()) return run_trim(words);
        if (verb == LAZYCK_RT_CPU && words.empty()) return run_cpu();
        return run(parse_options(argc, argv));
    } catch (const std::exception& e) {
        write_all(2, std::string(e.what()) + "\n");
        return 1;
    }
}
