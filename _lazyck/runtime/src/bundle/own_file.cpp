#include "bundle/own_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <charconv>
#include <cstdint>

#include "platform/environment.h"
#include "platform/files.h"

// _lazyck/postbuild/link/stubs.py generates this symbol.
extern "C" __attribute__((visibility("hidden"))) const unsigned char lazyck_manifest[];

namespace lazyck::rt {

namespace {

constexpr std::string_view k_deleted = " (deleted)";

// Holds the fields of a line of /proc/self/maps that are needed here.
struct Mapping {
    std::string device, inode;  // as the kernel writes them
    std::string path;
};

std::uintptr_t take_hex(std::string_view& text) {
    std::uintptr_t value = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    text.remove_prefix(static_cast<std::size_t>(end.ptr - text.data()));
    return value;
}

std::string_view take_word(std::string_view& text) {
    const std::size_t begin = text.find_first_not_of(' ');
    text.remove_prefix(begin == std::string_view::npos ? text.size() : begin);
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    return word;
}

// Decodes newlines: the kernel writes a newline in a name as \012 and leaves all else as it is, so
// a name that has these four characters looks alike.
std::string with_newlines(std::string text) {
    for (std::size_t at = 0; (at = text.find("\\012", at)) != std::string::npos; ++at) text.replace(at, 4, "\n");
    return text;
}

// Returns whether `line` describes the mapping that holds `address`, and if so sets `mapping`.
bool holds(std::string_view line, std::uintptr_t address, Mapping& mapping) {
    const std::uintptr_t begin = take_hex(line);
    if (line.empty() || line[0] != '-' || address < begin) return false;
    line.remove_prefix(1);
    if (address >= take_hex(line)) return false;
    take_word(line);  // permissions
    take_word(line);  // offset
    mapping.device = take_word(line);
    mapping.inode = take_word(line);
    const std::size_t path = line.find_first_not_of(' ');
    mapping.path = path == std::string_view::npos ? "" : line.substr(path);
    return true;
}

// Returns what is mapped at `address`, without a path if /proc does not tell.
Mapping mapping_at(const void* address) {
    Mapping mapping;
    const std::string maps = read_text("/proc/self/maps");
    for (std::size_t at = 0, end; (end = maps.find('\n', at)) != std::string::npos; at = end + 1) {
        const std::string_view line = std::string_view(maps).substr(at, end - at);
        if (holds(line, reinterpret_cast<std::uintptr_t>(address), mapping)) break;
    }
    return mapping;
}

// Returns whether the file at `path` is the one that `mapping` maps. Some file systems (overlayfs,
// btrfs) number files differently in `stat` and in /proc, so the file is mapped too and the two
// lines are compared.
bool is_mapped(const std::string& path, const Mapping& mapping) {
    const UniqueFd fd = open_file(path, O_RDONLY | O_NONBLOCK);
    struct stat st;
    if (!fd || fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return false;
    std::string_view device = mapping.device;
    const std::uintptr_t major_number = take_hex(device);
    device.remove_prefix(device.empty() ? 0 : 1);
    const bool is_same_device = major_number == major(st.st_dev) && take_hex(device) == minor(st.st_dev);
    if (is_same_device && mapping.inode == std::to_string(st.st_ino)) return true;
    void* const page = mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (page == MAP_FAILED) return false;
    const Mapping other = mapping_at(page);
    munmap(page, 1);
    return !other.inode.empty() && other.device == mapping.device && other.inode == mapping.inode;
}

// Returns `path`, the kernel's, if the file there may stand in for the deleted one, else an empty
// string. An upgrade replaces a library under running programs. Sources may be compiled from the
// new file's place only if nobody else could have put the file there; the bundle is checked to be
// this library's in any case.
std::string replaced_file(const std::string& path) {
    struct stat st;
    const bool is_good = stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && stranger_of(st).empty();
    return is_good ? path : "";
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
    Mapping mapping = mapping_at(lazyck_manifest);
    if (mapping.inode.empty()) return loaded_file();
    if (mapping.path.empty() || mapping.path[0] != '/') return "";
    if (is_mapped(mapping.path, mapping)) return mapping.path;
    mapping.path = with_newlines(mapping.path);
    if (is_mapped(mapping.path, mapping)) return mapping.path;
    const std::size_t length = mapping.path.size();
    const bool is_deleted = length > k_deleted.size() && mapping.path.substr(length - k_deleted.size()) == k_deleted;
    return is_deleted ? replaced_file(mapping.path.substr(0, length - k_deleted.size())) : "";
}

}  // namespace lazyck::rt
