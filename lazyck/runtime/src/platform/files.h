// Descriptors, mapped files, directories and temporary trees, each owned by an object.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lazyck::rt {

class UniqueFd {
 public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : m_fd(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : m_fd(std::exchange(other.m_fd, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        std::swap(m_fd, other.m_fd);
        return *this;
    }
    ~UniqueFd();

    int get() const { return m_fd; }
    explicit operator bool() const { return m_fd >= 0; }
    // Gives up the descriptor, which stays open.
    int release() { return std::exchange(m_fd, -1); }

 private:
    int m_fd = -1;
};

// Opens like open(2) with O_CLOEXEC, and retries after EINTR. If the result is empty, errno tells
// why.
UniqueFd open_file(const std::string& path, int flags, unsigned mode = 0600);

// Opens `name` in an open directory like open_file, but never follows a link.
UniqueFd open_at(int directory, const std::string& name, int flags, unsigned mode = 0600);

// These open a file that lazyck keeps for itself, and nothing else that may have been put in its
// place. It must be a regular file of the user or root that no other user can write. It is never a
// link, nor a FIFO, whose opening could block. They return an empty descriptor and set errno, which
// is EPERM for a file that is refused.
UniqueFd open_own(const std::string& path, int flags, unsigned mode = 0600);
UniqueFd open_own_at(int directory, const std::string& name, int flags, unsigned mode = 0600);

// Opens the directory `name` in the open directory `parent`, without following a link. `path` names
// it in errors. If the result is empty, errno tells why. Throws CompileError, with the reason and
// the remedy, for anything there except a directory that only the user or root can write.
UniqueFd open_trusted_at(int parent, const std::string& name, const std::string& path, int flags = O_RDONLY);

// Opens `path` without following a link in the file's name or in the `depth` directories above it.
// Each of these directories must belong to the user or root and be writable by no other user. The
// check is made on the open directory, so nothing can be put in its place meanwhile. Returns an
// empty descriptor and sets errno like open(2). Throws CompileError for a directory that cannot be
// trusted.
UniqueFd open_trusted(const std::string& path, unsigned depth, int flags);

// Opens the directory `path` like open_trusted; the directory itself must be as trusted as the
// `depth` ones above it. What is done through the descriptor stays in it, even if somebody renames
// the directories on the way. Throws CompileError.
UniqueFd open_trusted_directory(const std::string& path, unsigned depth);

// Returns who else could have written the file of this status, or an empty string.
std::string stranger_of(const struct stat& st);

// Returns who else could put something at `path`, or an empty string, through the file or any
// directory that leads to it. Links are followed. In a sticky directory on the way (/tmp), others
// cannot replace what belongs to the user or root.
std::string stranger_on_way(const std::string& path);

// Calls `use` for each file and directory below `directory`, with the path below it and whether it
// is a directory. Follows links. Returns false if not everything could be read.
bool for_each_below(const std::string& directory, const std::function<void(const std::string&, bool)>& use);

// A whole file in memory, to be read. An empty file has no data.
class MappedFile {
 public:
    // Reads the file at `path`, which its owner may change at any time: the kernel ends a process
    // by SIGBUS if it looks into a mapped file that was cut. Returns 0 or an errno value.
    int read(const std::string& path, bool follows_links = false);
    // Maps a file that lazyck alone writes. Returns 0 or an errno value.
    int map(int fd) { return take(fd, false); }

    const unsigned char* data() const { return static_cast<const unsigned char*>(m_data.get()); }
    std::size_t size() const { return m_data ? m_data.get_deleter().size : 0; }
    // Returns the file's status at the time of mapping.
    const struct stat& status() const { return m_status; }

 private:
    struct Unmap {
        std::size_t size;
        bool is_mapped;
        void operator()(void* data) const;
    };

    int take(int fd, bool is_copy);

    std::unique_ptr<void, Unmap> m_data;
    struct stat m_status = {};
};

// Writes all of `data`. Returns false and sets errno on failure. A reader that is gone (EPIPE) and
// a limit on the size of files (EFBIG) raise no signal in the program.
bool write_all(int fd, std::string_view data);

// Returns the contents of a regular file, at most `longest` bytes, or an empty string if it cannot
// be read.
std::string read_text(const std::string& path, std::size_t longest = SIZE_MAX);
// Returns the contents of an open file from `start` on. Leaves the file's offset where reading
// stopped.
std::string read_text(int fd, std::size_t start, std::size_t longest);

// Returns whether both statuses are of one file that did not change in between.
bool is_same_file(const struct stat& a, const struct stat& b);

bool is_directory(const std::string& path);
bool is_file(const std::string& path);
bool is_file_in(int directory, const std::string& name);

// Returns whether the file system of `path` has no room for a compilation.
bool is_full(const std::string& path);

std::string directory_of(const std::string& path);
std::string file_name_of(const std::string& path);
// Returns `path`, below the working directory if it is relative.
std::string absolute(const std::string& path);

// Makes the missing directories of `path` (0700), without checking existing ones. Returns 0 or an
// errno value.
int make_directories(const std::string& path);

// Returns all names in an open directory but "." and "..".
std::vector<std::string> names_in(int fd);

// These remove everything in the open directory `fd`, or only `name` in an open directory and
// everything below it, as far as possible. They follow no link.
void remove_contents(int fd);
void remove_tree(int directory, const std::string& name);

}  // namespace lazyck::rt
