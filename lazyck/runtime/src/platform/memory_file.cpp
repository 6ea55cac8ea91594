#include "platform/memory_file.h"

#include <limits.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace lazyck::rt {

namespace {

constexpr std::uint32_t k_smb2_magic = 0xfe534d42, k_cifs_magic = 0xff534d42;  // missing in older headers
// MFD_NOEXEC_SEAL and MFD_EXEC, which are missing in headers before Linux 6.3.
constexpr unsigned k_no_execute = 0x8, k_may_execute = 0x10;

// Calls the system call by its number: the C library has the function only since 2.27, the kernel
// since 3.17.
int create_memory_file(unsigned flags) {
    return static_cast<int>(syscall(SYS_memfd_create, "lazyck-blob", MFD_CLOEXEC | flags));
}

}  // namespace

std::string reason_to_copy(int fd) {
    struct statfs st;
    if (fstatfs(fd, &st) != 0) return "";
    if ((static_cast<unsigned long>(st.f_flags) & ST_NOEXEC) != 0) return "forbids to run code";
    // The servers of these file systems do not know which files are mapped. If another host
    // replaces or deletes a file, this process gets SIGBUS at the next page that it has not read
    // yet.
    constexpr std::uint32_t k_kinds[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, k_smb2_magic, k_cifs_magic, V9FS_MAGIC};
    for (const std::uint32_t kind : k_kinds) {
        if (static_cast<std::uint32_t>(st.f_type) == kind) return "is that of another host, which may take files away";
    }
    return "";
}

bool has_blank(const std::string& path) { return path.find_first_of(" \t\n") != std::string::npos; }

bool has_blank_in_path(int fd) {
    char path[PATH_MAX];
    const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    return size > 0 && has_blank({path, static_cast<std::size_t>(size)});
}

std::string mark_in_path(const struct stat& file) {
    const std::uint64_t parts[] = {std::uint64_t{file.st_dev}, std::uint64_t{file.st_ino},
                                   static_cast<std::uint64_t>(file.st_ctim.tv_sec),
                                   static_cast<std::uint64_t>(file.st_ctim.tv_nsec)};
    const std::uint64_t bits = hash(parts, sizeof parts).low;
    std::string mark = "/";
    mark.reserve(2 * 64 + 1);
    for (unsigned i = 0; i < 64; ++i) mark += ((bits >> i) & 1) != 0 ? "./" : "/";
    return mark;
}

UniqueFd make_memory_file(bool has_code) {
    int made = create_memory_file(has_code ? k_may_execute : k_no_execute);
    if (made < 0 && errno == EINVAL) made = create_memory_file(0);
    return UniqueFd(made);
}

bool copy_file(int from, int to) {
    std::vector<char> buffer(1 << 16);
    for (off_t at = 0;;) {
        const ssize_t n = pread(from, buffer.data(), buffer.size(), at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) return true;
        if (n < 0 || !write_all(to, {buffer.data(), static_cast<std::size_t>(n)})) return false;
        at += n;
    }
}

UniqueFd copy_to_memory(int fd) {
    UniqueFd memory = make_memory_file(true);
    return memory && copy_file(fd, memory.get()) ? std::move(memory) : UniqueFd();
}

}  // namespace lazyck::rt
