#include "platform/private_place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "platform/environment.h"
#include "platform/staging.h"

namespace lazyck::rt {

Strings private_parents() { return {environment("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"}; }

UniqueFd open_private_parent(const std::string& path) {
    struct stat st;
    if (path.empty() || path[0] != '/') return UniqueFd();
    UniqueFd fd = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!fd || fstat(fd.get(), &st) != 0 || (st.st_uid != geteuid() && st.st_uid != 0)) return UniqueFd();
    const bool is_safe = (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (st.st_mode & S_ISVTX) != 0;
    return is_safe ? std::move(fd) : UniqueFd();
}

std::optional<PrivatePlace> make_private_place(int directory, const std::string& parent, const std::string& name) {
    remove_left_over(directory, name + "-");
    std::string root = owned_prefix(parent + "/" + name) + "XXXXXX";
    if (mkdtemp(root.data()) == nullptr) return std::nullopt;
    UniqueFd hold = hold_directory(root);
    return PrivatePlace{parent, root, std::move(hold), getpid()};
}

void remove_private_place(PrivatePlace& place) {
    const UniqueFd parent = open_file(directory_of(place.root), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    const UniqueFd fd = parent ? open_at(parent.get(), file_name_of(place.root), O_RDONLY | O_DIRECTORY) : UniqueFd();
    if (place.process != getpid() || !fd) return;
    place.hold = UniqueFd();
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return;
    remove_tree(parent.get(), file_name_of(place.root));
}

}  // namespace lazyck::rt
