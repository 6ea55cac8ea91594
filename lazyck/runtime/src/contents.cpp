// The list is <root>/<library>/contents, written by lazyck/postbuild/bundle.py: "lazyck contents 1" NUL, then for each
// file its SHA-256 in hexadecimal, a blank, its path below <root>, NUL. Another version is no list.
#include "contents.h"

#include <string_view>
#include <unordered_set>

#include "files.h"
#include "sha256.h"

namespace lazyck::rt {

namespace {

constexpr char k_version[] = "lazyck contents 1";
constexpr std::size_t k_digits = 64;

}  // namespace

std::string Contents::find_change(const std::string& root, const ManifestView& manifest, const BlobRow& blob) {
    const Strings records = split(read_text(root + "/" + manifest.library() + "/contents"), std::string_view("\0", 1));
    if (records.empty() || records[0] != k_version) return "";
    std::unordered_set<std::string_view> of_other_blobs;
    for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) of_other_blobs.insert(manifest.blob(i).source);
    of_other_blobs.erase(blob.source);
    for (std::size_t i = 1; i < records.size(); ++i) {
        if (records[i].size() < k_digits + 2) continue;
        const std::string place = records[i].substr(k_digits + 1);
        if (of_other_blobs.count(place) != 0) continue;
        const std::string path = root + "/" + place;
        if (!is_file(path)) return "'" + path + "' is gone";
        if (!is_as_built(path, records[i].substr(0, k_digits))) return "'" + path + "' was changed";
    }
    return "";
}

bool Contents::is_as_built(const std::string& path, const std::string& digest) {
    struct stat st;
    if (stat(path.c_str(), &st) != 0) return false;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const auto known = m_good.find(path);
        if (known != m_good.end() && is_same_file(known->second, st)) return true;
    }
    MappedFile file;
    if (file.map(path, true) != 0 || sha256_hex(file.data(), file.size()) != digest) return false;
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_good[path] = file.status();
    return true;
}

}  // namespace lazyck::rt
