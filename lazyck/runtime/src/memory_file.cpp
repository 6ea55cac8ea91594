#include "memory_file.h"

#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace lazyck::rt {

namespace {

constexpr unsigned k_may_execute = 0x10;  // MFD_EXEC, which headers before Linux 6.3 lack

// By number: the C library has the function since 2.27 only, the kernel since 3.17.
int make_memory_file(unsigned flags) {
    return static_cast<int>(syscall(SYS_memfd_create, "lazyck-blob", MFD_CLOEXEC | flags));
}

}  // namespace

bool is_on_noexec(int fd) {
    struct statvfs st;
    return fstatvfs(fd, &st) == 0 && (st.f_flag & ST_NOEXEC) != 0;
}

UniqueFd copy_to_memory(int fd) {
    int made = make_memory_file(k_may_execute);
    if (made < 0 && errno == EINVAL) made = make_memory_file(0);
    UniqueFd memory(made);
    std::vector<char> buffer(1 << 16);
    off_t at = 0;
    while (memory) {
        const ssize_t n = pread(fd, buffer.data(), buffer.size(), at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) break;
        if (n < 0 || !write_all(memory.get(), {buffer.data(), static_cast<std::size_t>(n)})) return UniqueFd();
        at += n;
    }
    return memory;
}

}  // namespace lazyck::rt
