// Decides whether descriptor 2 is the standard error stream. A descriptor that comes through an
// exec, as standard error does, cannot be one that closes at an exec. A terminal, a pipe or a log
// that is appended to is not what a program opens for its data. A file that was descriptor 2 when
// the library was loaded is what the program was started with.
//
// The last check needs a constructor, the only code of the runtime that runs at load (one system
// call). The first line is too late for it, since `2>file` and a file that the program opened in
// its place look alike.
#include "platform/error_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdint>

#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr int k_number = 2, k_output = 1;

struct Identity {
    bool is_open = false;
    std::uint64_t device = 0, inode = 0;
};

Identity identity_of(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) return {};
    return {true, st.st_dev, st.st_ino};
}

bool are_same(const Identity& a, const Identity& b) {
    return a.is_open && b.is_open && a.device == b.device && a.inode == b.inode;
}

Identity g_at_load;

// Runs before the constructors of the program, which may open files.
__attribute__((constructor(101))) void note_error_stream() { g_at_load = identity_of(k_number); }

// Tells a connection to a log service, which is local, from connections of the program's own.
bool is_local(int socket) {
    sockaddr address = {};
    socklen_t size = sizeof address;
    return getsockname(socket, &address, &size) == 0 && address.sa_family == AF_UNIX;
}

}  // namespace

bool is_error_stream() {
    const Identity now = identity_of(k_number);
    struct stat st;
    const int flags = fcntl(k_number, F_GETFL);
    if (!now.is_open || fstat(k_number, &st) != 0 || flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return false;
    if ((fcntl(k_number, F_GETFD) & FD_CLOEXEC) != 0) return false;
    switch (st.st_mode & S_IFMT) {
        case S_IFCHR:
        case S_IFIFO:
            return true;
        case S_IFSOCK:
            return is_local(k_number);
        case S_IFREG:
            return are_same(now, g_at_load) || (flags & O_APPEND) != 0 || are_same(now, identity_of(k_output));
        default:
            return false;
    }
}

void write_to_error_stream(const std::string& text) {
    if (is_error_stream()) write_without_signal(k_number, text);
}

}  // namespace lazyck::rt
