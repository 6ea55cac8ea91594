#include "cache/texts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/failure.h"
#include "cache/entry.h"
#include "lazyck_abi.h"
#include "platform/messages.h"
#include "platform/staging.h"

namespace lazyck::rt {

namespace {

constexpr char k_texts[] = ".texts";
constexpr unsigned k_depth_of_texts = 1;
constexpr std::size_t k_longest_path_said = 1024;

// Returns the contents of such a file if they can be the path of an entry; else an empty string.
std::string entry_in(int directory, const std::string& name) {
    const UniqueFd fd = open_own_at(directory, name, O_RDONLY);
    const std::string said = fd ? read_text(fd.get(), 0, k_longest_path_said) : "";
    const Strings parts = split(said, "/");
    const bool is_path = parts.size() == LAZYCK_DEPTH_OF_ENTRIES - 1 &&
                         std::none_of(parts.begin(), parts.end(), [](const auto& p) { return p[0] == '.'; });
    return is_path ? join(parts, "/") : "";
}

}  // namespace

EntryKey key_of_text(const EntryKey& key, const Digest& text) {
    EntryKey made = key;
    made.blob = "text";
    made.digest = text.hex();
    made.toolchain_id.resize(std::min(made.toolchain_id.size(), made.toolchain_id.find(LAZYCK_HEADERS_MARK)));
    made.is_text = true;
    return made;
}

UniqueFd find_text(const Cache& cache, const EntryKey& text, const Strings& symbols) {
    const std::string texts = cache.root() + "/" + k_texts;
    if (!is_directory(texts)) return UniqueFd();
    const UniqueFd directory = open_trusted_directory(texts, k_depth_of_texts);
    const std::string entry = entry_in(directory.get(), text.id().hex());
    if (entry.empty()) return UniqueFd();
    const std::string path = cache.root() + "/" LAZYCK_CACHE_VERSION "/" + entry;
    UniqueFd fd = open_trusted(path, LAZYCK_DEPTH_OF_ENTRIES, O_RDONLY | O_NONBLOCK);
    struct stat st;
    if (!fd || fstat(fd.get(), &st) != 0 || !stranger_of(st).empty()) return UniqueFd();
    return find_entry_fault(fd.get(), text, symbols).empty() ? std::move(fd) : UniqueFd();
}

void keep_text(const Cache& cache, const EntryKey& text, const EntryKey& key) {
    const std::string path = cache.root() + "/" + k_texts;
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return;
    try {
        const UniqueFd directory = open_trusted_directory(path, k_depth_of_texts);
        const std::string name = text.id().hex(), own = owned_prefix("." + name);
        const UniqueFd fd = open_own_at(directory.get(), own, O_WRONLY | O_CREAT | O_TRUNC);
        if (fd && write_all(fd.get(), Cache::entry_name(key)))
            renameat(directory.get(), own.c_str(), directory.get(), name.c_str());
        else
            unlinkat(directory.get(), own.c_str(), 0);
    } catch (const CompileError& e) {
        log_once(path, e.what());
    }
}

std::size_t remove_unused_texts(const Directory& root) {
    const auto texts = root.find(k_texts);
    const auto version = texts ? root.find(LAZYCK_CACHE_VERSION) : std::nullopt;
    if (!version) return 0;
    std::size_t removed = 0;
    for (const std::string& name : texts->names()) {
        const std::string entry = entry_in(texts->fd(), name);
        struct stat st;
        if (entry.empty() || (fstatat(version->fd(), entry.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT))
            removed += texts->remove_file(name) == 0 ? 1 : 0;
    }
    return removed;
}

}  // namespace lazyck::rt
