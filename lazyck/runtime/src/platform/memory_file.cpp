#include "platform/memory_file.h"

#include <elf.h>
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
#include <cstring>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "platform/elf_view.h"

namespace lazyck::rt {

namespace {

constexpr std::uint32_t k_smb2_magic = 0xfe534d42, k_cifs_magic = 0xff534d42;  // missing in older headers
constexpr unsigned k_may_execute = 0x10;  // MFD_EXEC, which is missing in headers before Linux 6.3

// Calls the system call by its number: the C library has the function only since 2.27, the kernel
// since 3.17.
int create_memory_file(unsigned flags) {
    return static_cast<int>(syscall(SYS_memfd_create, "lazyck-blob", MFD_CLOEXEC | flags));
}

struct EmptyLibrary {
    Elf64_Ehdr header;
    Elf64_Phdr segments[3];
    Elf64_Sym symbol;  // the null symbol that every table begins with
    std::uint32_t hash[4];
};

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

UniqueFd make_memory_file() {
    int made = create_memory_file(k_may_execute);
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
    UniqueFd memory = make_memory_file();
    return memory && copy_file(fd, memory.get()) ? std::move(memory) : UniqueFd();
}

UniqueFd make_empty_library(const Strings& needed) {
    std::string strings(1, '\0');
    std::vector<Elf64_Dyn> dynamic;
    for (const std::string& name : needed) {
        dynamic.push_back({DT_NEEDED, {strings.size()}});
        strings += name + '\0';
    }
    const std::uint64_t strings_at = sizeof(EmptyLibrary);
    const std::uint64_t dynamic_at = (strings_at + strings.size() + 15) & ~std::uint64_t{15};
    dynamic.push_back({DT_STRTAB, {strings_at}});
    dynamic.push_back({DT_STRSZ, {strings.size()}});
    dynamic.push_back({DT_SYMTAB, {offsetof(EmptyLibrary, symbol)}});
    dynamic.push_back({DT_SYMENT, {sizeof(Elf64_Sym)}});
    dynamic.push_back({DT_HASH, {offsetof(EmptyLibrary, hash)}});
    dynamic.push_back({DT_NULL, {0}});
    const std::uint64_t dynamic_size = dynamic.size() * sizeof dynamic[0];
    const std::uint64_t size = dynamic_at + dynamic_size;
    EmptyLibrary image = {};
    Elf64_Ehdr& header = image.header;
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = own_machine();
    header.e_flags = own_elf_flags();
    header.e_version = EV_CURRENT;
    header.e_phoff = offsetof(EmptyLibrary, segments);
    header.e_ehsize = sizeof header;
    header.e_phentsize = sizeof image.segments[0];
    header.e_phnum = 3;
    // The segment is writable because the loader turns the section's addresses into absolute ones
    // in place.
    image.segments[0] = {PT_LOAD, PF_R | PF_W, 0, 0, 0, size, size, 0x10000};
    image.segments[1] = {PT_DYNAMIC, PF_R | PF_W, dynamic_at, dynamic_at, dynamic_at, dynamic_size, dynamic_size, 8};
    image.segments[2] = {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16};
    image.hash[0] = 1;  // one bucket, which is empty, and one symbol
    image.hash[1] = 1;
    std::string file(reinterpret_cast<const char*>(&image), sizeof image);
    file += strings;
    file.resize(dynamic_at);
    file.append(reinterpret_cast<const char*>(dynamic.data()), dynamic_size);
    UniqueFd memory = make_memory_file();
    return memory && write_all(memory.get(), file) ? std::move(memory) : UniqueFd();
}

}  // namespace lazyck::rt
