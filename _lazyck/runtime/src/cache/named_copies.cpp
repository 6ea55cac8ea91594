#include "cache/named_copies.h"

#include <fcntl.h>
#include <unistd.h>

#include "platform/memory_file.h"

namespace lazyck::rt {

constexpr unsigned k_mode = 0500;

UniqueFd NamedCopies::make(int fd) {
    for (const std::string& parent : PrivatePlaces::parents()) {
        std::string path;
        {
            const std::lock_guard<std::mutex> guard(m_mutex);
            path = m_places.below(
                parent, [&](int directory) { return !has_blank(parent) && reason_to_copy(directory).empty(); });
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
    m_places.close();
}

}  // namespace lazyck::rt
