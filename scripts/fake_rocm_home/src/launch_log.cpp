#include "launch_log.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "state.h"

namespace fake_rocm {
namespace {

constexpr const char* k_log_variable = "FAKE_ROCM_LAUNCH_LOG";

// Maps a whole file as long as the object lives.
class MappedFile {
 public:
    explicit MappedFile(const char* path) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return;
        struct stat status;
        if (fstat(fd, &status) == 0 && status.st_size > 0) {
            void* data = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
            if (data != MAP_FAILED) {
                m_data = static_cast<const char*>(data);
                m_size = status.st_size;
            }
        }
        close(fd);
    }
    ~MappedFile() {
        if (m_data != nullptr) munmap(const_cast<char*>(m_data), m_size);
    }
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    // Returns nullptr if the file does not reach that far.
    template <class T>
    const T* at(size_t offset, size_t count = 1) const {
        if (offset > m_size || count > (m_size - offset) / sizeof(T)) return nullptr;
        return reinterpret_cast<const T*>(m_data + offset);
    }

 private:
    const char* m_data = nullptr;
    size_t m_size = 0;
};

// Returns the function symbol with this value in .symtab, or an empty string if there is none.
std::string symtab_name(const MappedFile& file, ElfW(Addr) value) {
    const auto* header = file.at<ElfW(Ehdr)>(0);
    if (header == nullptr || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
    const auto* sections = file.at<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
    if (sections == nullptr) return {};
    for (int i = 0; i < header->e_shnum; ++i) {
        const ElfW(Shdr)& table = sections[i];
        if (table.sh_type != SHT_SYMTAB || table.sh_link >= header->e_shnum) continue;
        const ElfW(Shdr)& strings = sections[table.sh_link];
        const size_t count = table.sh_size / sizeof(ElfW(Sym));
        const auto* symbols = file.at<ElfW(Sym)>(table.sh_offset, count);
        const char* text = file.at<char>(strings.sh_offset, strings.sh_size);
        if (symbols == nullptr || text == nullptr) continue;
        for (size_t s = 0; s < count; ++s)
            if (symbols[s].st_value == value && (symbols[s].st_info & 0xf) == STT_FUNC &&
                symbols[s].st_name < strings.sh_size)
                return text + symbols[s].st_name;
    }
    return {};
}

// Turns "( HIP_KERNEL_NAME(add<float, 4>) )" into "add<float,4>".
std::string without_blanks(std::string text) {
    const std::string wrapper = "HIP_KERNEL_NAME(";
    const size_t at = text.find(wrapper);
    if (at != std::string::npos) text = text.substr(at + wrapper.size(), text.rfind(')') - at - wrapper.size());
    std::string result;
    for (const char c : text)
        if (isspace(static_cast<unsigned char>(c)) == 0) result += c;
    return result;
}

}  // namespace

std::string name_of_function(const void* address, const char* fallback) {
    Dl_info info;
    link_map* map = nullptr;
    if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0) {
        if (info.dli_sname != nullptr && info.dli_saddr == address) return info.dli_sname;
        // The program itself has no name there, and a path from dladdr may be relative to another
        // directory.
        const char* path = map->l_name[0] == '\0' ? "/proc/self/exe" : map->l_name;
        const std::string name = symtab_name(MappedFile(path), reinterpret_cast<ElfW(Addr)>(address) - map->l_addr);
        if (!name.empty()) return name;
    }
    if (fallback != nullptr) return without_blanks(fallback);
    char text[32];
    snprintf(text, sizeof(text), "%p", address);
    return text;
}

bool is_logging() {
    const char* path = getenv(k_log_variable);
    return path != nullptr && *path != '\0';
}

void log_launch(const char* role, const std::string& kernel, dim3 grid, dim3 block, size_t shared_bytes) {
    char head[256];
    const Device* device = current_device_or_null();
    snprintf(head, sizeof(head),
             "pid=%d role=%s arch=%s grid=%u,%u,%u block=%u,%u,%u shared=%zu kernel=", static_cast<int>(getpid()), role,
             device == nullptr ? "none" : device->m_target.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z,
             shared_bytes);
    const std::string line = head + kernel + "\n";
    const char* path = getenv(k_log_variable);
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    // This is one write to a file opened for appending, so lines of several processes do not mix.
    if (fd < 0 || write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
        fprintf(stderr, "fake_rocm: cannot append to %s=%s: %m\n", k_log_variable, path);
    if (fd >= 0) close(fd);
}

}  // namespace fake_rocm
