// Descriptors, mapped files, directories and temporary trees, each owned by an object.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
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
    // Leaves it open for good.
    int release() { return std::exchange(m_fd, -1); }

 private:
    int m_fd = -1;
};

// Like open(2) with O_CLOEXEC, again after EINTR; errno tells why it is empty.
UniqueFd open_file(const std::string& path, int flags, unsigned mode = 0600);

// The same for `name` in an open directory, and never follows a link.
UniqueFd open_at(int directory, const std::string& name, int flags, unsigned mode = 0600);

// Opens a file that lazyck keeps for itself, and nothing else that may have been put in its place: a regular file of
// the user or root that nobody else can write, never a link, nor a FIFO, whose opening could wait for ever. Empty with
// errno, which is EPERM for such a thing.
UniqueFd open_own(const std::string& path, int flags, unsigned mode = 0600);
// The same for `name` in an open directory.
UniqueFd open_own_at(int directory, const std::string& name, int flags, unsigned mode = 0600);

// Opens `path` and follows no link in the file's name nor in the `depth` directories above it, each of which must
// belong to the user or root and be writable by nobody else: it is each opened one that is looked at, so nothing can be
// put in its place meanwhile. Empty with errno like open(2); throws CompileError for a directory that cannot be
// trusted.
UniqueFd open_trusted(const std::string& path, unsigned depth, int flags);

// The directory `path`, opened so, itself as trusted as the `depth` ones above it: what is done by way of the
// descriptor stays in it, whoever renames the directories on the way. Throws CompileError.
UniqueFd open_trusted_directory(const std::string& path, unsigned depth);

// Throws CompileError, with the reason and the remedy, unless `st` is a directory that only the user or root can write.
void check_trusted(const std::string& path, const struct stat& st);

// Who else could have written the file of this status, or "".
std::string stranger_of(const struct stat& st);

// Who else could put something at `path`, or "": by way of the file or of any directory that leads to it, links
// followed. Where a sticky directory is on the way (/tmp), others cannot replace what is the user's or root's.
std::string stranger_on_way(const std::string& path);

// Calls `use` with the path below `directory` of each thing in it and in its directories, and whether that is a
// directory. Links are followed, names that begin with a dot are passed over. False: not all could be read.
bool for_each_below(const std::string& directory, const std::function<void(const std::string&, bool)>& use);

// A whole file, mapped read-only.
class MappedFile {
 public:
    MappedFile() = default;
    MappedFile(MappedFile&& other) noexcept
        : m_data(std::exchange(other.m_data, nullptr)),
          m_size(std::exchange(other.m_size, 0)),
          m_status(other.m_status) {}
    MappedFile& operator=(MappedFile&& other) noexcept {
        std::swap(m_data, other.m_data);
        std::swap(m_size, other.m_size);
        std::swap(m_status, other.m_status);
        return *this;
    }
    ~MappedFile();

    // Maps `path`; returns 0 or an errno value. An empty file maps to no data.
    int map(const std::string& path, bool follows_links = false);
    // The same for an open file.
    int map(int fd);

    const unsigned char* data() const { return static_cast<const unsigned char*>(m_data); }
    std::size_t size() const { return m_size; }
    // As it was when the file was mapped.
    const struct stat& status() const { return m_status; }

 private:
    void* m_data = nullptr;
    std::size_t m_size = 0;
    struct stat m_status = {};
};

// Writes all of `data`; false (and errno) on failure.
bool write_all(int fd, std::string_view data);

// The same where the reader may be gone (a pipe, a terminal): that is an error then (EPIPE), and no signal for the
// program.
bool write_without_signal(int fd, std::string_view data);

// The contents of a regular file, at most so many bytes, or "" if it cannot be read.
std::string read_text(const std::string& path, std::size_t longest = SIZE_MAX);
// The same for an open file, from `start` on; leaves its offset where it stopped.
std::string read_text(int fd, std::size_t start, std::size_t longest);

// Whether two looks saw one file, unchanged.
bool is_same_file(const struct stat& a, const struct stat& b);

bool is_directory(const std::string& path);
bool is_file(const std::string& path);
bool is_file_in(int directory, const std::string& name);

// Whether the file system of `path` has no room for a compilation.
bool is_full(const std::string& path);

std::string directory_of(const std::string& path);
std::string file_name_of(const std::string& path);
// `path`, below the working directory if it is relative.
std::string absolute(const std::string& path);

// Makes missing directories of `path` (0700), without looking at those that exist. Returns 0 or an errno value.
int make_directories(const std::string& path);

// All names in the open directory `fd` but "." and "..".
std::vector<std::string> names_in(int fd);

// Removes all that is in the open directory `fd`, as far as it can; follows no link.
void remove_contents(int fd);

// Removes `name` in an open directory and all below it, as far as it can; follows no link.
void remove_tree(int directory, const std::string& name);

}  // namespace lazyck::rt
