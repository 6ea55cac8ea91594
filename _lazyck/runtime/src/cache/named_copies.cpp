#include "cache/named_copies.h"

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "platform/memory_file.h"

namespace lazyck::rt {

constexpr unsigned k_mode = 0500;

// Returns the directory for copies below `parent`, or an empty string if there can be none.
std::string NamedCopies::place_below(const std::string& parent) {
    for (const PrivatePlace& place : m_places) {
        if (place.parent == parent) return place.root;
    }
    const UniqueFd directory = open_private_parent(parent);
    if (!directory || has_blank(parent) || !reason_to_copy(directory.get()).empty()) return "";
    std::optional<PrivatePlace> made = make_private_place(directory.get(), parent, m_name);
    if (!made) return "";
    m_places.push_back(std::move(*made));
    return m_places.back().root;
}

UniqueFd NamedCopies::make(int fd) {
    for (const std::string& parent : private_parents()) {
        std::string path;
        {
            const std::lock_guard<std::mutex> guard(m_mutex);
            path = place_below(parent);
            if (path.empty()) continue;
            path += "/" + std::to_string(++m_count) + ".so";
        }
        UniqueFd copy = open_file(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, k_mode);
        if (copy && copy_file(fd, copy.get())) return copy;
        if (copy) unlink(path.c_str());
    }
    return UniqueFd();
}

void NamedCopies::close() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    for (PrivatePlace& place : m_places) remove_private_place(place);
}

}  // namespace lazyck::rt
