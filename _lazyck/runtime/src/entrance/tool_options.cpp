#include "entrance/tool_options.h"

#include <algorithm>
#include <utility>

#include "base/failure.h"
#include "platform/files.h"

namespace lazyck::rt {

const char k_usage[] =
    "usage: lazyck-rt compile|make|status|path|kernels|packs|preambles|preamble --from LIBRARY|MANIFEST [--library "
    "LIBRARY]\n"
    "                 [--arch ARCH]... [--blob-list FILE] [--quiet] [--again] [--] [BLOB]...\n"
    "  compile   make sure that the cache has the blobs; with --again, whatever other caches have\n"
    "  make      compile one blob in a cache of its own, by the library's compiler and no other, and leave "
    "`made/entry`,\n"
    "            `made/log` and `made/cost`: the action of a compile service. --toolchain DIR: a home for it\n"
    "  status    one JSON line for each blob: name, arch, path, cached; key and entry: its key and its path in any "
    "cache\n"
    "  path      where each blob's entry is or would be, one per line\n"
    "  kernels   one JSON line for each kernel of those blobs whose host unit is cached: blob, name, symbol\n"
    "  packs     one JSON line for each installed pack: name, version, root; problem: why it is not used, or empty\n"
    "  preambles one JSON line for each blob: name; preamble, equal for those that can share a precompiled one, or "
    "null\n"
    "  preamble  makes the precompiled one of a blob in the cache, for compile to use\n"
    "Without blobs: all. Several --arch make one entry for all of them together.\n"
    "       lazyck-rt verify CACHE\n"
    "  reads every entry; one JSON line for each, and for each directory that is refused: path, problem. Status 1 if\n"
    "  there is a problem\n"
    "       lazyck-rt trim CACHE [--max-size BYTES] [--older-than SECONDS] [--only FILE] [--dry-run]\n"
    "  removes the least recently used entries; a JSON line for each removed entry, and one with the sums.\n"
    "  FILE lists the paths of the entries, or of the directories of entries, that may go, one per line\n";

ToolOptions parse_options(int argc, char** argv) {
    ToolOptions options;
    if (argc < 2) fail(k_usage);
    options.verb = argv[1];
    const Strings verbs = {"compile", "make", "status", "path", "kernels", "packs", "preambles", "preamble"};
    if (std::find(verbs.begin(), verbs.end(), options.verb) == verbs.end()) fail(k_usage);
    bool takes_options = true;
    for (int i = 2; i < argc; ++i) {
        const std::string word = argv[i];
        if (!takes_options) {
            options.blobs.push_back(word);
            continue;
        }
        const auto value = [&]() -> std::string {
            if (i + 1 >= argc) fail("lazyck-rt: " + word + " needs a value\n" + k_usage);
            return argv[++i];
        };
        if (word == "--from") {
            options.from = value();
        } else if (word == "--library") {
            options.library = value();
        } else if (word == "--arch") {
            options.archs += value() + ";";
        } else if (word == "--toolchain") {
            options.toolchain = absolute(value());
        } else if (word == "--blob-list") {
            const std::string file = value();
            if (!is_file(file)) fail("lazyck-rt: no file '" + file + "'");
            for (std::string& name : split(read_text(file), "\n")) options.blobs.push_back(std::move(name));
            options.has_blobs = true;
        } else if (word == "--quiet") {
            options.is_quiet = true;
        } else if (word == "--again") {
            options.is_again = true;
        } else if (word == "--") {
            takes_options = false;
            options.has_blobs = true;
        } else if (word[0] == '-') {
            fail("lazyck-rt: unknown option " + word + "\n" + k_usage);
        } else {
            options.blobs.push_back(word);
            options.has_blobs = true;
        }
    }
    if (options.from.empty()) options.from = options.library;
    if (options.from.empty()) fail(k_usage);
    return options;
}

}  // namespace lazyck::rt
