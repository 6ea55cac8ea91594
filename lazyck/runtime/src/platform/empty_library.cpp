#include "platform/empty_library.h"

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "platform/elf_view.h"

namespace lazyck::rt {

namespace {

struct alignas(16) Image {
    Elf64_Ehdr header;
    Elf64_Phdr segments[3];
    Elf64_Sym own;  // what a variable has as its value
};

}  // namespace

std::string contents_of(const EmptyLibrary& library) {
    Image image = {};
    std::string strings(1, '\0');
    std::vector<Elf64_Dyn> dynamic;
    const auto add = [&](Elf64_Sxword tag, const std::string& text) {
        dynamic.push_back({tag, {strings.size()}});
        strings += text + '\0';
    };
    for (const std::string& name : library.needed) add(DT_NEEDED, name);
    if (!library.search.empty()) add(DT_RPATH, library.search);
    if (!library.only.empty()) add(DT_RUNPATH, library.only);
    // Each table begins with the null symbol. The hash table has one bucket, with all symbols in a
    // chain from the last to the first.
    std::vector<Elf64_Sym> symbols(1);
    std::vector<std::uint32_t> hash = {1, 0, 0, 0};
    for (const std::string& symbol : library.symbols) {
        Elf64_Sym row = {};
        row.st_name = static_cast<Elf64_Word>(strings.size());
        row.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
        row.st_shndx = 1;  // any, as it is defined
        row.st_value = offsetof(Image, own);
        row.st_size = 1;
        strings += symbol + '\0';
        hash.push_back(hash[2]);
        hash[2] = static_cast<std::uint32_t>(symbols.size());
        symbols.push_back(row);
    }
    hash[1] = static_cast<std::uint32_t>(symbols.size());
    std::string tables;
    const auto append = [&](const void* data, std::size_t size) {
        tables.resize((tables.size() + 15) & ~std::size_t{15});
        tables.append(static_cast<const char*>(data), size);
        return sizeof(Image) + tables.size() - size;
    };
    dynamic.push_back({DT_SYMTAB, {append(symbols.data(), symbols.size() * sizeof symbols[0])}});
    dynamic.push_back({DT_SYMENT, {sizeof(Elf64_Sym)}});
    dynamic.push_back({DT_HASH, {append(hash.data(), hash.size() * sizeof hash[0])}});
    dynamic.push_back({DT_STRTAB, {append(strings.data(), strings.size())}});
    dynamic.push_back({DT_STRSZ, {strings.size()}});
    dynamic.push_back({DT_NULL, {0}});
    const std::uint64_t dynamic_at = append(dynamic.data(), dynamic.size() * sizeof dynamic[0]);
    const std::uint64_t dynamic_size = dynamic.size() * sizeof dynamic[0];
    const std::uint64_t size = dynamic_at + dynamic_size;
    Elf64_Ehdr& header = image.header;
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = own_machine();
    header.e_flags = own_elf_flags();
    header.e_version = EV_CURRENT;
    header.e_phoff = offsetof(Image, segments);
    header.e_ehsize = sizeof header;
    header.e_phentsize = sizeof image.segments[0];
    header.e_phnum = 3;
    // The segment is writable because the loader turns the section's addresses into absolute ones
    // in place.
    image.segments[0] = {PT_LOAD, PF_R | PF_W, 0, 0, 0, size, size, 0x10000};
    image.segments[1] = {PT_DYNAMIC, PF_R | PF_W, dynamic_at, dynamic_at, dynamic_at, dynamic_size, dynamic_size, 8};
    image.segments[2] = {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16};
    return std::string(reinterpret_cast<const char*>(&image), sizeof image) + tables;
}

}  // namespace lazyck::rt
