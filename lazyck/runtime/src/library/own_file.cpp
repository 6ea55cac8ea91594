#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "library/blobs.h"
#include "platform/environment.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

constexpr std::string_view k_deleted = " (deleted)";

// What is mapped at an address, as /proc/self/maps says.
struct Mapping {
    dev_t device;
    ino_t inode;
    std::string path;
};

// Returns nothing if /proc does not tell.
std::optional<Mapping> mapping_at(const void* address) {
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    const std::string maps = read_text("/proc/self/maps");
    for (std::size_t at = 0, end; (end = maps.find('\n', at)) != std::string::npos; at = end + 1) {
        char* rest = nullptr;
        const std::uintptr_t begin = std::strtoull(maps.c_str() + at, &rest, 16);
        if (*rest != '-' || wanted < begin || wanted >= std::strtoull(rest + 1, &rest, 16)) continue;
        // In front of the device are permissions and an offset.
        const std::size_t offset = maps.find(' ', rest - maps.c_str() + 1);
        const char* const device = maps.c_str() + std::min(maps.find(' ', offset + 1), end);
        const auto major_number = static_cast<unsigned>(std::strtoul(device, &rest, 16));
        const auto minor_number = static_cast<unsigned>(std::strtoul(rest + (*rest == ':'), &rest, 16));
        const ino_t inode = std::strtoull(rest, &rest, 10);
        const std::size_t path = std::min(maps.find_first_not_of(' ', rest - maps.c_str()), end);
        return Mapping{makedev(major_number, minor_number), inode, maps.substr(path, end - path)};
    }
    return std::nullopt;
}

// Decodes newlines: the kernel writes a newline in a name as \012 and leaves all else as it is, so
// a name that has these four characters looks alike.
std::string with_newlines(std::string text) {
    for (std::size_t at = 0; (at = text.find("\\012", at)) != std::string::npos; ++at) text.replace(at, 4, "\n");
    return text;
}

// Returns whether the file at `path` is the one that `mapping` maps. Some file systems (overlayfs,
// btrfs) number files differently in `stat` and in /proc, so the file is mapped too and the two
// lines are compared.
bool is_mapped(const std::string& path, const Mapping& mapping) {
    struct stat st;
    if (stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return false;
    if (st.st_dev == mapping.device && st.st_ino == mapping.inode) return true;
    const UniqueFd fd = open_file(path, O_RDONLY | O_NONBLOCK);
    if (!fd) return false;
    void* const page = mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (page == MAP_FAILED) return false;
    const std::optional<Mapping> other = mapping_at(page);
    munmap(page, 1);
    return other && other->device == mapping.device && other->inode == mapping.inode;
}

// Returns the path by which the loader found the file, if the path is absolute; this is used
// without /proc. The path of a program is what its caller asked the kernel to run. For a privileged
// program, that may be any link to it, so it is not used.
std::string loaded_file() {
    Dl_info info;
    const link_map* map = nullptr;
    void** const extra = reinterpret_cast<void**>(const_cast<link_map**>(&map));
    if (dladdr1(static_cast<const void*>(lazyck_manifest), &info, extra, RTLD_DL_LINKMAP) == 0 || map == nullptr)
        return "";
    const char* name = map->l_name;
    if (name == nullptr || name[0] == '\0')
        name = is_privileged() ? nullptr : reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    return name != nullptr && name[0] == '/' && is_file(name) ? name : "";
}

}  // namespace

std::string own_file() {
    const std::optional<Mapping> mapping = mapping_at(lazyck_manifest);
    if (!mapping) return loaded_file();
    if (mapping->path[0] != '/') return "";
    if (is_mapped(mapping->path, *mapping)) return mapping->path;
    const std::string path = with_newlines(mapping->path);
    if (is_mapped(path, *mapping)) return path;
    const std::size_t end = path.size() - std::min(path.size(), k_deleted.size());
    if (path.substr(end) != k_deleted) return "";
    // An upgrade replaces a library under running programs. Sources may be compiled from beside the
    // new file only if no other user could have put the file there. The bundle is checked to be
    // this library's in any case.
    const std::string replaced = path.substr(0, end);
    struct stat st;
    const bool is_good = stat(replaced.c_str(), &st) == 0 && S_ISREG(st.st_mode) && stranger_of(st).empty();
    return is_good ? replaced : "";
}

}  // namespace lazyck::rt
