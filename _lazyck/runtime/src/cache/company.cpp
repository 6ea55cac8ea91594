// For the references of each library that it loads for an opened library, the loader searches the
// libraries that the opened one needs, breadth first. So the library is loaded as a dependency of
// an empty library, after those that shall come first. The empty one is a page in a memory file. It
// must stay loaded as long as the libraries that it needs, because the loader searches by its list.
#include "cache/company.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/machine.h"
#include "platform/files.h"
#include "platform/memory_file.h"

namespace lazyck::rt {

namespace {

struct EmptyLibrary {
    Elf64_Ehdr header;
    Elf64_Phdr segments[3];
    Elf64_Sym symbol;  // the null symbol that every table begins with
    std::uint32_t hash[4];
};

void add(std::string& out, const void* data, std::size_t size) { out.append(static_cast<const char*>(data), size); }

// Returns the file of an empty library that needs `names`.
std::string empty_library(const Strings& names) {
    std::string strings(1, '\0');
    std::vector<Elf64_Dyn> dynamic;
    for (const std::string& name : names) {
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
    for (int i = 0; i < SELFMAG; ++i) header.e_ident[i] = static_cast<unsigned char>(ELFMAG[i]);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = own_machine();
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
    std::string file;
    add(file, &image, sizeof image);
    file += strings;
    file.resize(dynamic_at);
    add(file, dynamic.data(), dynamic_size);
    return file;
}

void* loader_failure(std::string& reason, const std::string& otherwise) {
    const char* const text = dlerror();
    reason = text == nullptr ? otherwise : text;
    return nullptr;
}

}  // namespace

void* load_behind(const Strings& before, const std::string& name, std::string& reason) {
    Strings names = before;
    names.push_back(name);
    const std::string file = empty_library(names);
    const UniqueFd memory = make_memory_file();
    struct stat st;
    if (!memory || !write_all(memory.get(), file) || fstat(memory.get(), &st) != 0) {
        reason = "no memory file for the list of libraries that come before it: " + system_text(errno);
        return nullptr;
    }
    const std::string path = "/proc/self/fd" + mark_in_path(st) + std::to_string(memory.get());
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return loader_failure(reason, path);
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return handle != nullptr ? handle : loader_failure(reason, name);
}

}  // namespace lazyck::rt
