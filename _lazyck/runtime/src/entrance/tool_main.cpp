// lazyck-rt runs the runtime's own cache and compiler code from the command line, for
// `lazyck prebuild`.
#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/numbers.h"
#include "cache/cache.h"
#include "cache/entry.h"
#include "cache/packs.h"
#include "entrance/tool_blobs.h"
#include "entrance/tool_make.h"
#include "platform/config.h"
#include "platform/files.h"
#include "platform/messages.h"
#include "platform/threads.h"
#include "store/store.h"
#include "store/trim.h"

namespace {

using namespace lazyck::rt;

int list_packs(const std::string& library, const ManifestView& manifest) {
    std::string lines;
    for (const Pack& pack : find_packs(library, manifest)) {
        const std::string problem = join(explain_mismatches({pack}, library, manifest), "");
        lines += "{\"name\": " + json_string(pack.name) + ", \"version\": " + json_string(pack.version) +
                 ", \"root\": " + json_string(pack.root) + ", \"problem\": " + json_string(problem) + "}\n";
    }
    return write_all(1, lines) ? 0 : 1;
}

// Compiles the chosen blobs, with `is_again` also those that a cache has. Returns the exit status:
// 2 if the compiler itself refused each of those that failed, and would refuse it again.
int compile(Store& store, const Config& config, const std::vector<Chosen>& blobs, bool is_again) {
    const auto get = is_again ? &Store::make : &Store::obtain;
    std::atomic<int> failures{0}, refusals{0};
    for_each_in_parallel(blobs.size(), config.jobs, [&](std::size_t i) {
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
int make(const ActionCache& cache, Store& store, const Places& places, const Config& config, const Chosen& blob) {
    check_compiler(blob.manifest->recipe(blob.row().recipe), places.roots.empty() ? "" : places.roots[0]);
    const int status = compile(store, config, {blob}, false);
    std::string path;
    store.is_cached(blob.at(), blob.archs, path);
    const Guess cost = store.expected_cost(blob.at(), blob.archs);
    cache.deliver(path, cost.blob.seconds, cost.blob.peak_kib);
    return status;
}

int run(const ToolOptions& options) {
    if (options.is_quiet) silence();
    const ToolSource source(options);
    if (!options.toolchain.empty()) offer_toolchain(source.manifest(), options.toolchain);
    Config config = read_config();
    config.compile_service.clear();  // `prebuild build --executor` asks one
    std::optional<ActionCache> action;
    if (options.verb == "make") action.emplace(config);
    const ManifestView& manifest = source.manifest();
    const Places places = source.places(config);
    if (options.verb == "packs") return list_packs(places.library, manifest);
    Store store(config, places);
    const Strings asked = options.archs.empty() ? config.archs : parse_archs(options.archs, "--arch");
    PartsByName parts(store, asked, options.verb == "compile" || options.verb == "make");
    const std::vector<Chosen> blobs = choose(manifest, options, asked, parts);
    if (options.verb == "preamble") {
        if (blobs.size() != 1) fail(k_usage);
        const std::string problem = store.preambles.make(blobs[0].at(), blobs[0].archs);
        if (!problem.empty()) fail("lazyck: no precompiled preamble: " + problem);
        return 0;
    }
    if (options.verb == "compile") return compile(store, config, blobs, options.is_again);
    if (options.verb == "make") {
        if (blobs.size() != 1) fail(k_usage);
        return make(*action, store, places, config, blobs[0]);
    }
    std::string out;
    for (const Chosen& blob : blobs) {
        if (options.verb == "kernels") {
            if (manifest.has_parts(blob.index)) out += parts.kernels_of(manifest, blob.index);
            continue;
        }
        const Strings& archs = blob.archs;
        const std::string name = json_string(blob.row().name);
        if (options.verb == "preambles") {
            const std::string preamble = store.preambles.key_of(blob.at(), archs);
            out +=
                "{\"name\": " + name + ", \"preamble\": " + (preamble.empty() ? "null" : json_string(preamble)) + "}\n";
            continue;
        }
        std::string path;
        const bool is_cached = store.is_cached(blob.at(), archs, path);
        if (options.verb == "path") {
            out += path + "\n";
            continue;
        }
        const EntryKey key = store.key_of(blob.at(), archs);
        out += "{\"name\": " + name + ", \"arch\": " + json_string(join(archs, "+")) +
               ", \"path\": " + json_string(path) + ", \"cached\": " + (is_cached ? "true" : "false") +
               ", \"key\": " + json_string(key.id().hex()) + ", \"entry\": " + json_string(Cache::entry_name(key)) +
               "}\n";
    }
    return write_all(1, out) ? 0 : 1;
}

int run_verify(const std::string& root) {
    bool is_good = true;
    const auto tell = [&](const std::string& path, const std::string& problem) {
        is_good &= problem.empty();
        write_all(1, "{\"path\": " + json_string(path) + ", \"problem\": " + json_string(problem) + "}\n");
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
        if (words[i] == "--dry-run") {
            request.is_dry = true;
        } else if (words[i] == "--max-size" && has_value) {
            request.most_bytes = std::stoull(words[++i]);
        } else if (words[i] == "--older-than" && has_value) {
            const std::optional<double> seconds = number_in(words[++i]);
            if (!seconds) fail(k_usage);
            request.oldest_seconds = *seconds;
        } else if (words[i] == "--only" && has_value) {
            const Strings paths = split(read_text(words[++i]), "\n");
            request.only.emplace(paths.begin(), paths.end());
        } else {
            fail(k_usage);
        }
    }
    const TrimOutcome outcome =
        trim(Directory::open(cache_root(absolute(words.at(0)), "trim ")), request, [](const TrimmedEntry& entry) {
            write_all(1, "{\"path\": " + json_string(entry.path) + ", \"bytes\": " + std::to_string(entry.bytes) +
                             ", \"last_use\": " + decimal(entry.last_use, 3) + "}\n");
        });
    const std::string sum = "{\"kept\": " + std::to_string(outcome.kept) +
                            ", \"kept_bytes\": " + std::to_string(outcome.kept_bytes) +
                            ", \"removed\": " + std::to_string(outcome.removed) +
                            ", \"removed_bytes\": " + std::to_string(outcome.removed_bytes) +
                            ", \"removed_logs\": " + std::to_string(outcome.removed_logs) +
                            ", \"removed_preambles\": " + std::to_string(outcome.removed_preambles) +
                            ", \"removed_texts\": " + std::to_string(outcome.removed_texts) + "}\n";
    return write_all(1, sum) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const std::string verb = argc > 2 ? argv[1] : "";
        const Strings words(argv + std::min(argc, 2), argv + argc);
        if (verb == "verify" && words.size() == 1) return run_verify(cache_root(absolute(words[0]), "verify "));
        if (verb == "trim") return run_trim(words);
        return run(parse_options(argc, argv));
    } catch (const std::exception& e) {
        write_all(2, std::string(e.what()) + "\n");
        return 1;
    }
}
