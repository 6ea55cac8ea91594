#include "cache/directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/failure.h"
#include "platform/messages.h"

namespace lazyck::rt {

namespace {

constexpr int k_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

// Throws CompileError unless the open directory `fd` can be trusted.
void check(const UniqueFd& fd, const std::string& path) {
    struct stat st;
    if (fstat(fd.get(), &st) != 0) fail_system("cannot read the cache directory '" + path + "'", errno);
    check_trusted(path, st);
}

}  // namespace

void pass_over(const std::string& path, const std::string& reason) { say_once(path, reason + "; skipped"); }

Directory Directory::open(const std::string& path) {
    UniqueFd fd = open_file(path, k_flags);
    if (!fd) {
        const int error = errno;
        struct stat st;
        if (lstat(path.c_str(), &st) == 0) check_trusted(path, st);  // throws if it is a link or a file
        fail_system("cannot open the cache directory '" + path + "'", error);
    }
    check(fd, path);
    return {std::move(fd), path};
}

std::optional<Directory> Directory::find(const std::string& name, const Refused& refused) const {
    const std::string below = m_path + "/" + name;
    try {
        UniqueFd fd = open_at(m_fd.get(), name, k_flags);
        if (!fd) {
            const int error = errno;
            const auto st = status_of(name);
            if (!st || (!S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode))) return std::nullopt;
            check_trusted(below, *st);
            fail_system("cannot open the cache directory '" + below + "'", error);
        }
        check(fd, below);
        return Directory(std::move(fd), below);
    } catch (const CompileError& e) {
        refused(below, e.what());
        return std::nullopt;
    }
}

Strings Directory::names() const { return names_in(m_fd.get()); }

std::optional<struct stat> Directory::status_of(const std::string& name) const {
    struct stat st;
    if (fstatat(m_fd.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
    return st;
}

int Directory::remove_file(const std::string& name) const {
    return unlinkat(m_fd.get(), name.c_str(), 0) == 0 ? 0 : errno;
}

}  // namespace lazyck::rt
