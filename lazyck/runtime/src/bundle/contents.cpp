// The list is <root>/<library>/contents, written by lazyck/postbuild/bundle.py: the text "lazyck
// contents 1", NUL, then for each file its SHA-256 in hexadecimal, a blank, its path below <root>,
// NUL. A list of another version is not read.
#include "bundle/contents.h"

#include <string_view>
#include <unordered_set>

#include "base/hash.h"
#include "platform/environment.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr char k_contents_version[] = "lazyck contents 1";
constexpr std::size_t k_sha256_digits = 64;

std::string list_path(const std::string& root, const ManifestView& manifest) {
    return root + "/" + manifest.library() + "/contents";
}

}  // namespace

bool Contents::is_own_list(const std::string& root, const ManifestView& manifest) {
    MappedFile file;
    return file.read(list_path(root, manifest), true) == 0 &&
           sha256_hex(file.data(), file.size()) == manifest.contents();
}

std::string Contents::find_fault(const std::string& root, const ManifestView& manifest, const BlobRow& blob,
                                 bool is_again) {
    const std::string list = list_path(root, manifest);
    if (manifest.contents()[0] != '\0') {
        const std::string fault = fault_of(list, manifest.contents(), is_again);
        if (!fault.empty()) return fault;
    }
    const Strings records = split(read_text(list), std::string_view("\0", 1));
    if (records.empty() || records[0] != k_contents_version)
        return manifest.contents()[0] == '\0' ? "" : "'" + list + "' is of another version of lazyck";
    std::unordered_set<std::string_view> of_other_blobs;
    for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) of_other_blobs.insert(manifest.blob(i).source);
    of_other_blobs.erase(blob.source);
    std::unordered_set<std::string> listed;
    for (std::size_t i = 1; i < records.size(); ++i) {
        if (records[i].size() < k_sha256_digits + 2) continue;
        const std::string name = records[i].substr(k_sha256_digits + 1);
        listed.insert(name);
        if (of_other_blobs.count(name) != 0) continue;
        const std::string fault = fault_of(root + "/" + name, records[i].substr(0, k_sha256_digits), is_again);
        if (!fault.empty()) return fault;
    }
    // A compiler may read a header that was added in one directory instead of the header of that
    // name in a later one.
    const std::string tree = std::string(manifest.library()) + "/tree";
    std::string foreign;
    if (!is_directory(root + "/" + tree)) return "";
    const bool is_whole = for_each_below(root + "/" + tree, [&](const std::string& path, bool is_directory) {
        const std::string name = tree + "/" + path;
        // NFS keeps a file that was removed while it was open as `.nfs…`, which no source names.
        const bool is_remnant = file_name_of(path).rfind(".nfs", 0) == 0;
        if (!is_directory && !is_remnant && foreign.empty() && listed.count(name) == 0) foreign = root + "/" + name;
    });
    if (!foreign.empty()) return "'" + foreign + "' was not there";
    return is_whole ? "" : "not all directories of '" + root + "/" + tree + "' can be read";
}

std::string Contents::fault_of(const std::string& path, const std::string& digest, bool is_again) {
    struct stat st;
    if (stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return "'" + path + "' is gone";
    const std::string changed = "'" + path + "' was changed";
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const auto known = m_good.find(path);
        if (known != m_good.end() && is_same_file(known->second, st)) return "";
        if (known != m_good.end() && is_again) return changed;
    }
    if (is_privileged()) {
        const std::string stranger = stranger_on_way(path);
        if (!stranger.empty()) return stranger;
    }
    MappedFile file;
    if (file.read(path, true) != 0 || sha256_hex(file.data(), file.size()) != digest) return changed;
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_good[path] = file.status();
    return "";
}

}  // namespace lazyck::rt
