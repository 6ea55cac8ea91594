#include "platform/staging.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/failure.h"
#include "platform/environment.h"

namespace lazyck::rt {

namespace {

// The age from which a directory may be removed. It ensures that no directory is judged before its
// maker holds it.
constexpr std::time_t k_left_alone = 600;  // seconds
constexpr std::size_t k_random_size = 7;   // '-' and six letters

// Returns the process in a name that was made from owned_prefix, if it is of this host; else 0.
pid_t owner_in(const std::string& name) {
    const std::string end = "@" + safe_name(host_name());
    if (name.size() < end.size() + k_random_size) return 0;
    const std::size_t host_at = name.size() - k_random_size - end.size();
    if (name[name.size() - k_random_size] != '-' || name.compare(host_at, end.size(), end) != 0) return 0;
    const std::size_t dash = name.rfind('-', host_at);
    if (dash == std::string::npos || dash + 1 >= host_at || host_at - dash > 11) return 0;
    pid_t pid = 0;
    const char* const end_of_pid = name.data() + host_at;
    return std::from_chars(name.data() + dash + 1, end_of_pid, pid).ptr == end_of_pid ? pid : 0;
}

// Returns six letters that no other process can guess, like those of mkdtemp, which takes a path.
std::string random_letters() {
    constexpr char k_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789__";
    unsigned char bytes[k_random_size - 1];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) fail_system("no random numbers", errno);
    std::string letters;
    for (const unsigned char byte : bytes) letters += k_letters[byte % 64];
    return letters;
}

// Returns whether a directory is old. A time in the future counts as one in the past: otherwise a
// clock that jumped would protect a directory without an end.
bool is_old(const struct stat& st) { return std::labs(std::time(nullptr) - st.st_mtime) > k_left_alone; }

UniqueFd open_private_parent(const std::string& path) {
    struct stat st;
    if (path.empty() || path[0] != '/') return UniqueFd();
    UniqueFd fd = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!fd || fstat(fd.get(), &st) != 0 || (st.st_uid != geteuid() && st.st_uid != 0)) return UniqueFd();
    const bool is_safe = (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (st.st_mode & S_ISVTX) != 0;
    return is_safe ? std::move(fd) : UniqueFd();
}

}  // namespace

std::string owned_prefix(const std::string& stem) {
    return stem + "-" + std::to_string(getpid()) + "@" + safe_name(host_name()) + "-";
}

StagingDirectory::StagingDirectory(const std::string& prefix)
    : m_parent(open_trusted_directory(directory_of(prefix), 1)) {
    do {
        m_path = prefix + random_letters();
        if (mkdirat(m_parent.get(), file_name_of(m_path).c_str(), 0700) == 0) break;
        if (errno != EEXIST) fail_system("cannot make a directory '" + m_path + "'", errno);
    } while (true);
    m_fd = open_at(m_parent.get(), file_name_of(m_path), O_RDONLY | O_DIRECTORY);
    if (!m_fd) {
        const int error = errno;
        remove_tree(m_parent.get(), file_name_of(m_path));
        fail_system("cannot open the directory '" + m_path + "'", error);
    }
    flock(m_fd.get(), LOCK_SH | LOCK_NB);  // see PrivateDirectories
}

StagingDirectory::~StagingDirectory() { remove_tree(m_parent.get(), file_name_of(m_path)); }

void remove_left_over(int parent, const std::string& stem) {
    for (const std::string& name : names_in(parent)) {
        const pid_t owner = name.compare(0, stem.size(), stem) == 0 ? owner_in(name) : 0;
        if (owner <= 0 || kill(owner, 0) == 0 || errno != ESRCH) continue;
        const UniqueFd fd = open_at(parent, name, O_RDONLY | O_DIRECTORY);
        struct stat st;
        if (!fd || fstat(fd.get(), &st) != 0 || st.st_uid != geteuid() || !is_old(st)) continue;
        if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
        // The directory that was checked is emptied through its descriptor, even if another one has
        // its name meanwhile.
        remove_contents(fd.get());
        unlinkat(parent, name.c_str(), AT_REMOVEDIR);
    }
}

Strings PrivateDirectories::parents() { return {environment("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"}; }

std::string PrivateDirectories::below(const std::string& parent, const std::function<bool(int)>& suits) {
    for (const Owned& each : m_owned) {
        if (each.parent == parent) return each.root;
    }
    const UniqueFd directory = open_private_parent(parent);
    if (!directory || !suits(directory.get())) return "";
    remove_left_over(directory.get(), m_name + "-");
    std::string root = owned_prefix(parent + "/" + m_name) + "XXXXXX";
    if (mkdtemp(root.data()) == nullptr) return "";
    m_owned.push_back({parent, root, UniqueFd(), getpid()});
    return root;
}

// A lock works where process numbers mean nothing, too (containers that share a host's name), but
// not if the file system has no locks.
void PrivateDirectories::hold() {
    for (Owned& each : m_owned) {
        if (each.hold) continue;
        each.hold = open_file(each.root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (each.hold && flock(each.hold.get(), LOCK_SH | LOCK_NB) != 0) each.hold = UniqueFd();
    }
}

void PrivateDirectories::close() {
    for (Owned& each : m_owned) {
        const UniqueFd parent = open_file(each.parent, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        const std::string name = file_name_of(each.root);
        const UniqueFd fd = parent ? open_at(parent.get(), name, O_RDONLY | O_DIRECTORY) : UniqueFd();
        if (each.process != getpid() || !fd) continue;
        struct stat own, held;
        // The program may have closed it, and use its number.
        if (fstat(fd.get(), &own) != 0 || fstat(each.hold.get(), &held) != 0 || !is_same_file(own, held))
            each.hold.release();
        each.hold = UniqueFd();
        if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
        remove_tree(parent.get(), name);
    }
}

}  // namespace lazyck::rt
