#include "platform/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "base/failure.h"
#include "base/text.h"
#include "lazyck_abi.h"

namespace lazyck::rt {

namespace {

constexpr unsigned k_deepest = 64;
constexpr std::size_t k_least_mapped = 128 << 10;  // bytes: to map and unmap memory costs more than to copy so many

UniqueFd open_retrying(int directory, const std::string& path, int flags, unsigned mode) {
    int fd;
    do {
        fd = openat(directory, path.c_str(), flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    return UniqueFd(fd);
}

mode_t type_of(const std::string& path) {
    struct stat st;
    return stat(path.c_str(), &st) == 0 ? st.st_mode & S_IFMT : 0;
}

std::string octal(unsigned mode) {
    std::string out;
    for (int shift = 6; shift >= 0; shift -= 3) out += static_cast<char>('0' + ((mode >> shift) & 7));
    return "0" + out;
}

bool walk(const std::string& root, const std::string& below, unsigned depth,
          const std::function<void(const std::string&, bool)>& use) {
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir((root + below).c_str()), closedir);
    if (!listing || depth > k_deepest) return false;
    bool is_whole = true;
    while (const dirent* const entry = readdir(listing.get())) {
        const std::string name = entry->d_name, path = below + "/" + name;
        if (name == "." || name == "..") continue;
        const bool is_known = entry->d_type == DT_REG || entry->d_type == DT_DIR;
        const bool is_below = is_known ? entry->d_type == DT_DIR : is_directory(root + path);
        use(path.substr(1), is_below);
        if (is_below) is_whole &= walk(root, path, depth + 1, use);
    }
    return is_whole;
}

// Takes the signal that came with an error of write(2), which keeps out (see threads.h) meanwhile.
void take_signal_of(int error) {
    sigset_t raised;
    sigemptyset(&raised);
    if (error == EPIPE) sigaddset(&raised, SIGPIPE);
    if (error == EFBIG) sigaddset(&raised, SIGXFSZ);
    const timespec now = {};
    while (sigtimedwait(&raised, nullptr, &now) < 0 && errno == EINTR) {
    }
    errno = error;
}

std::string read_rest(int fd, std::size_t longest) {
    std::string out;
    std::vector<char> buffer(4096);
    while (out.size() < longest) {
        const ssize_t n = read(fd, buffer.data(), std::min(buffer.size(), longest - out.size()));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        out.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return out;
}

// Throws CompileError, with the reason and the remedy, unless `st` is a directory that only the
// user or root can write.
void check_trusted(const std::string& path, const struct stat& st) {
    const std::string stranger = S_ISDIR(st.st_mode) ? stranger_of(st) : "";
    if (S_ISDIR(st.st_mode) && stranger.empty()) return;
    const std::string start = "lazyck: refusing the cache directory '" + path + "': ";
    const std::string advice = "; set " LAZYCK_ENV_CACHE_DIR " to a directory of your own";
    if (S_ISLNK(st.st_mode)) fail(start + "it is a symbolic link; set " LAZYCK_ENV_CACHE_DIR " to where it points");
    if (!S_ISDIR(st.st_mode)) fail(start + "it is not a directory" + advice);
    const bool is_ours = st.st_uid == geteuid();
    fail(start + stranger + (is_ours ? "; run: chmod go-w " + shell_quote(path) : advice));
}

}  // namespace

UniqueFd::~UniqueFd() {
    if (m_fd >= 0) close(m_fd);
}

UniqueFd open_file(const std::string& path, int flags, unsigned mode) {
    return open_retrying(AT_FDCWD, path, flags, mode);
}

UniqueFd open_at(int directory, const std::string& name, int flags, unsigned mode) {
    return open_retrying(directory, name, flags | O_NOFOLLOW, mode);
}

UniqueFd open_own(const std::string& path, int flags, unsigned mode) {
    return open_own_at(AT_FDCWD, path, flags, mode);
}

UniqueFd open_own_at(int directory, const std::string& name, int flags, unsigned mode) {
    UniqueFd fd = open_at(directory, name, flags | O_NONBLOCK, mode);
    struct stat st;
    if (!fd || (fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode) && stranger_of(st).empty())) return fd;
    errno = EPERM;
    return UniqueFd();
}

std::string stranger_of(const struct stat& st) {
    if (st.st_uid != geteuid() && st.st_uid != 0) {
        return "it belongs to user " + std::to_string(st.st_uid) + ", who could put any code into it";
    }
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return "others can write to it (mode " + octal(st.st_mode & 0777) + ")";
    return "";
}

std::string stranger_on_way(const std::string& path) {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
    if (!real) return "'" + path + "': " + system_text(errno);
    for (std::string at = real.get();; at = directory_of(at)) {
        struct stat st;
        if (lstat(at.c_str(), &st) != 0) return "'" + at + "': " + system_text(errno);
        if (S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX) != 0) st.st_mode &= ~static_cast<mode_t>(S_IWGRP | S_IWOTH);
        const std::string stranger = stranger_of(st);
        if (!stranger.empty()) return "'" + at + "': " + stranger;
        if (at == "/") return "";
    }
}

bool for_each_below(const std::string& directory, const std::function<void(const std::string&, bool)>& use) {
    return walk(directory, "", 0, use);
}

UniqueFd open_trusted_at(int parent, const std::string& name, const std::string& path, int flags) {
    UniqueFd fd = open_at(parent, name, flags | O_DIRECTORY);
    const int error = errno;
    struct stat st;
    const int status = fd ? fstat(fd.get(), &st) : fstatat(parent, name.c_str(), &st, AT_SYMLINK_NOFOLLOW);
    if (status == 0) check_trusted(path, st);
    errno = error;
    return fd;
}

UniqueFd open_trusted(const std::string& path, unsigned depth, int flags) {
    Strings names = {file_name_of(path)};
    std::string so_far = directory_of(path);
    for (; depth > 1; --depth, so_far = directory_of(so_far)) names.push_back(file_name_of(so_far));
    UniqueFd at = open_trusted_at(AT_FDCWD, so_far, so_far, O_PATH);
    for (; at && names.size() > 1; names.pop_back()) {
        so_far += "/" + names.back();
        at = open_trusted_at(at.get(), names.back(), so_far, O_PATH);
    }
    if (!at) return at;
    return flags & O_DIRECTORY ? open_trusted_at(at.get(), names[0], path, flags) : open_at(at.get(), names[0], flags);
}

UniqueFd open_trusted_directory(const std::string& path, unsigned depth) {
    UniqueFd fd = open_trusted(path, depth, O_RDONLY | O_DIRECTORY);
    if (!fd) fail_system("cannot open the cache directory '" + path + "'", errno);
    return fd;
}

void MappedFile::Unmap::operator()(void* data) const {
    if (is_mapped)
        munmap(data, size);
    else
        std::free(data);
}

int MappedFile::read(const std::string& path, bool follows_links) {
    const UniqueFd fd = open_file(path, O_RDONLY | O_NONBLOCK | (follows_links ? 0 : O_NOFOLLOW));
    return fd ? take(fd.get(), true) : errno;
}

int MappedFile::take(int fd, bool is_copy) {
    struct stat st;
    if (fstat(fd, &st) != 0) return errno;
    if (!S_ISREG(st.st_mode)) return S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    *this = MappedFile();
    m_status = st;
    if (st.st_size == 0) return 0;
    const auto size = static_cast<std::size_t>(st.st_size);
    const int flags = MAP_PRIVATE | (is_copy ? MAP_ANONYMOUS : 0);
    const bool is_mapped = !is_copy || size >= k_least_mapped;
    void* data = is_mapped ? mmap(nullptr, size, PROT_READ | (is_copy ? PROT_WRITE : 0), flags, is_copy ? -1 : fd, 0)
                           : std::malloc(size);
    if (data == MAP_FAILED || data == nullptr) return errno;
    m_data = {data, {size, is_mapped}};
    for (std::size_t at = 0; is_copy && at < size;) {
        const ssize_t n = pread(fd, static_cast<char*>(data) + at, size - at, static_cast<off_t>(at));
        if (n < 0 && errno != EINTR) return errno;
        if (n == 0) return EBUSY;  // somebody has cut the file
        at += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    }
    return 0;
}

bool write_all(int fd, std::string_view data) {
    while (!data.empty()) {
        const ssize_t n = write(fd, data.data(), data.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            take_signal_of(errno);
            return false;
        }
        data.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
}

std::string read_text(const std::string& path, std::size_t longest) {
    const UniqueFd fd = open_file(path, O_RDONLY | O_NONBLOCK);
    struct stat st;
    return fd && fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode) ? read_rest(fd.get(), longest) : "";
}

std::string read_text(int fd, std::size_t start, std::size_t longest) {
    return lseek(fd, static_cast<off_t>(start), SEEK_SET) < 0 ? "" : read_rest(fd, longest);
}

bool is_same_file(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
           a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

bool is_directory(const std::string& path) { return type_of(path) == S_IFDIR; }

bool is_file(const std::string& path) { return type_of(path) == S_IFREG; }

bool is_file_in(int directory, const std::string& name) {
    struct stat st;
    return fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

bool is_full(const std::string& path) {
    constexpr std::uint64_t k_too_little = 1 << 20;
    struct statvfs st;
    if (statvfs(path.c_str(), &st) != 0) return false;
    return std::uint64_t{st.f_bavail} * st.f_frsize < k_too_little || (st.f_files != 0 && st.f_favail == 0);
}

std::string directory_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string file_name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string absolute(const std::string& path) {
    if (!path.empty() && path[0] == '/') return path;
    const std::unique_ptr<char, decltype(&std::free)> here(getcwd(nullptr, 0), &std::free);
    if (!here) fail_system("the working directory, which '" + path + "' is relative to", errno);
    return std::string(here.get()) + "/" + path;
}

int make_directories(const std::string& path) {
    if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return 0;
    if (errno != ENOENT || path == "/" || path.find('/') == std::string::npos) return errno;
    if (const int error = make_directories(directory_of(path))) return error;
    return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

std::vector<std::string> names_in(int fd) {
    // The directory is opened anew, because a duplicated descriptor would share the position of
    // another listing.
    UniqueFd own = open_at(fd, ".", O_RDONLY | O_DIRECTORY);
    Strings names;
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(own ? fdopendir(own.get()) : nullptr, closedir);
    if (!listing) return names;
    own.release();
    while (const dirent* const entry = readdir(listing.get())) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(name);
    }
    return names;
}

void remove_contents(int fd) {
    for (const std::string& name : names_in(fd)) remove_tree(fd, name);
}

void remove_tree(int directory, const std::string& name) {
    if (unlinkat(directory, name.c_str(), 0) == 0) return;
    const UniqueFd fd = open_at(directory, name, O_RDONLY | O_DIRECTORY);
    if (!fd) return;
    remove_contents(fd.get());
    unlinkat(directory, name.c_str(), AT_REMOVEDIR);
}

}  // namespace lazyck::rt
