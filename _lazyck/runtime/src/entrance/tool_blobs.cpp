#include "entrance/tool_blobs.h"

#include <algorithm>

#include "base/failure.h"
#include "bundle/arch.h"
#include "lazyck_abi.h"
#include "platform/elf_view.h"

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

namespace {

std::vector<Chosen> choose_rows(const ManifestView& manifest, const ToolOptions& options, PartsByName& parts) {
    const auto own = std::make_shared<const ManifestView>(manifest);
    std::vector<Chosen> chosen;
    std::unordered_map<std::string, std::uint32_t> by_name;
    for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) {
        if (options.has_blobs) {
            by_name.emplace(manifest.blob(i).name, i);
        } else {
            chosen.push_back({own, i});
        }
    }
    for (const std::string& name : options.blobs) {
        const auto found = by_name.find(name);
        if (found != by_name.end()) {
            chosen.push_back({own, found->second});
            continue;
        }
        const std::size_t dot = name.rfind('.');
        const auto blob = dot == std::string::npos ? by_name.end() : by_name.find(name.substr(0, dot));
        std::optional<Chosen> part;
        if (blob != by_name.end() && manifest.has_parts(blob->second)) part = parts.find(manifest, blob->second, name);
        if (!part) fail("lazyck: '" + options.from + "' has no blob '" + visible(name) + "'");
        chosen.push_back(std::move(*part));
    }
    return chosen;
}

}  // namespace

ToolSource::ToolSource(const ToolOptions& options) : m_path(absolute(options.from)) {
    // The path may be a link: users may name a library by one.
    if (const int error = m_file.map(m_path, true)) fail_system("cannot read '" + m_path + "'", error);
    const ElfView elf(m_file.data(), m_file.size());
    m_is_library = elf.problem().empty();
    const auto section = elf.section(LAZYCK_MANIFEST_SECTION);
    if (m_is_library && !section) fail("lazyck: '" + m_path + "' is not a lazy library");
    m_manifest = section ? ManifestView(m_file.data() + section->first, section->second, m_path)
                         : ManifestView(m_file.data(), m_file.size(), m_path);
    m_library = options.library.empty() ? "" : absolute(options.library);
}

Places ToolSource::places(const Config& config) const {
    if (m_is_library || !m_library.empty()) {
        const std::string& library = m_library.empty() ? m_path : m_library;
        return {library, bundle_roots(config.root, m_manifest.root(), library)};
    }
    // A bundle is <directory of the library>/lazyck, and its manifest is
    // <bundle>/<name>/manifest.
    const std::string own_root = directory_of(directory_of(m_path));
    Strings roots = {config.root.empty() ? own_root : config.root};
    if (config.root.empty() && m_manifest.root()[0] == '/') roots.emplace_back(m_manifest.root());
    std::string library;
    for (const std::string& root : roots) {
        if (!is_file(library)) library = library_in(directory_of(root), m_manifest);
    }
    return {library, roots};
}

std::optional<Chosen> PartsByName::find(const ManifestView& manifest, std::uint32_t index, const std::string& name) {
    auto& parts = m_parts[index];
    if (!parts) parts = parts_of(manifest, index);
    for (std::uint32_t i = 0; i < parts->blob_count(); ++i) {
        if (parts->blob(i).name == name) return Chosen{parts, i};
    }
    if (parts->blob_count() > ManifestView::k_first_kernel || m_makes_hosts) return std::nullopt;
    return Chosen{std::make_shared<ManifestView>(manifest.unknown_kernel(index, name)), 0};
}

std::string PartsByName::kernels_of(const ManifestView& manifest, std::uint32_t index) {
    std::string lines;
    const std::shared_ptr<const ManifestView> parts = parts_of(manifest, index);
    for (std::uint32_t i = ManifestView::k_first_kernel; i < parts->blob_count(); ++i) {
        const BlobRow kernel = parts->blob(i);
        lines += "{\"blob\": " + json_string(manifest.blob(index).name) + ", \"name\": " + json_string(kernel.name) +
                 ", \"symbol\": " + json_string(parts->symbols_of(kernel).front()) + "}\n";
    }
    return lines;
}

std::shared_ptr<const ManifestView> PartsByName::parts_of(const ManifestView& manifest, std::uint32_t index) {
    const ManifestView plain = manifest.parts(index, {});
    const Strings archs = archs_for(plain, plain.blob(ManifestView::k_host_unit).recipe, m_archs, false);
    std::optional<Entry> host = m_makes_hosts ? m_store.obtain({plain, ManifestView::k_host_unit}, archs)
                                              : m_store.find({plain, ManifestView::k_host_unit}, archs);
    const std::string text = host ? read_text(host->path) : "";
    constexpr char k_begin[] = LAZYCK_KERNELS_VERSION "\n";
    const std::size_t at = text.find(k_begin);
    const std::string table = at == std::string::npos ? "" : text.c_str() + at;
    return std::make_shared<ManifestView>(manifest.parts(index, lines_of_table(table)));
}

std::vector<Chosen> choose(const ManifestView& manifest, const ToolOptions& options, const Strings& asked,
                           PartsByName& parts) {
    std::vector<Chosen> chosen;
    for (const Chosen& each : choose_rows(manifest, options, parts)) {
        for (Strings& archs : archs_of_entries(each.row(), archs_for(*each.manifest, each.row().recipe, asked, false)))
            chosen.push_back({each.manifest, each.index, std::move(archs)});
    }
    return chosen;
}

}  // namespace lazyck::rt
