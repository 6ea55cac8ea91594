#include "cache/directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/failure.h"
#include "platform/messages.h"

namespace lazyck::rt {

void pass_over(const std::string& path, const std::string& reason) { log_once(path, reason + "; skipped"); }

Directory Directory::open(const std::string& path) {
    UniqueFd fd = open_trusted_at(AT_FDCWD, path, path);
    if (!fd) fail_system("cannot open the cache directory '" + path + "'", errno);
    return {std::move(fd), path};
}

std::optional<Directory> Directory::find(const std::string& name, const Refused& refused) const {
    const auto st = status_of(name);
    if (!st || (!S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode))) return std::nullopt;
    const std::string below = m_path + "/" + name;
    try {
        UniqueFd fd = open_trusted_at(m_fd.get(), name, below);
        if (fd) return Directory(std::move(fd), below);
        if (errno == ENOENT) return std::nullopt;
        fail_system("cannot open the cache directory '" + below + "'", errno);
    } catch (const CompileError& e) {
        refused(below, e.what());
        return std::nullopt;
    }
}

std::optional<struct stat> Directory::status_of(const std::string& name) const {
    struct stat st;
    if (fstatat(m_fd.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
    return st;
}

}  // namespace lazyck::rt
