#include "elf_object.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "steps.h"
#include "text.h"

namespace lazyck::units {

namespace {

std::string_view part(std::string_view bytes, std::uint64_t offset, std::uint64_t size) {
    if (offset > bytes.size() || bytes.size() - offset < size) throw Refused{"an object is cut off"};
    return bytes.substr(offset, size);
}

template <class T>
T read_at(std::string_view bytes, std::uint64_t offset) {
    T value;
    std::memcpy(&value, part(bytes, offset, sizeof value).data(), sizeof value);
    return value;
}

std::string_view string_at(std::string_view strings, std::uint64_t offset) {
    if (offset >= strings.size()) return {};
    const std::string_view rest = strings.substr(offset);
    return rest.substr(0, rest.find('\0'));
}

// Adds the contents of a section to an object, aligned as its header `row` says, and puts their
// place there.
void append(std::string& object, Elf64_Shdr& row, std::string_view contents) {
    if (row.sh_addralign > 1)
        object.resize((object.size() + row.sh_addralign - 1) / row.sh_addralign * row.sh_addralign);
    row.sh_offset = object.size();
    row.sh_size = contents.size();
    object += contents;
}

}  // namespace

ElfObject::ElfObject(std::string_view bytes) : m_bytes(bytes) {
    if (bytes.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0 ||
        bytes[EI_CLASS] != ELFCLASS64 || bytes[EI_DATA] != ELFDATA2LSB)
        throw Refused{"the compiler's output is not an ELF object"};
    const auto head = read_at<Elf64_Ehdr>(bytes, 0);
    // If there are too many sections for the file header's fields, the first section header holds
    // their number and the index of their names.
    const auto first = read_at<Elf64_Shdr>(bytes, head.e_shoff);
    const std::uint64_t count = head.e_shnum != 0 ? head.e_shnum : first.sh_size;
    m_names = head.e_shstrndx != SHN_XINDEX ? head.e_shstrndx : first.sh_link;
    std::vector<Elf64_Shdr> rows;
    for (std::uint64_t i = 0; i < count; ++i)
        rows.push_back(read_at<Elf64_Shdr>(bytes, head.e_shoff + i * sizeof(Elf64_Shdr)));
    if (m_names >= rows.size()) throw Refused{"an object's sections have no names"};
    const std::string_view names = part(bytes, rows[m_names].sh_offset, rows[m_names].sh_size);
    for (const Elf64_Shdr& row : rows) {
        const bool has_contents = row.sh_type != SHT_NOBITS && row.sh_type != SHT_NULL;
        m_sections.push_back({string_at(names, row.sh_name), row.sh_type, row.sh_link, row.sh_info,
                              has_contents ? part(bytes, row.sh_offset, row.sh_size) : std::string_view()});
    }
    for (const Section& section : m_sections) {
        if (section.type == SHT_SYMTAB) read_symbols(section);
        if (section.type == SHT_RELA) read_relocations(section);
    }
    std::sort(m_relocations.begin(), m_relocations.end());
}

void ElfObject::read_symbols(const Section& table) {
    if (table.link >= m_sections.size()) throw Refused{"an object's symbols have no names"};
    const std::string_view names = m_sections[table.link].contents;
    std::string_view indices;  // section indices that do not fit into a symbol
    for (const Section& section : m_sections) {
        if (section.type == SHT_SYMTAB_SHNDX) indices = section.contents;
    }
    for (std::uint64_t i = 0; i < table.contents.size() / sizeof(Elf64_Sym); ++i) {
        const auto row = read_at<Elf64_Sym>(table.contents, i * sizeof(Elf64_Sym));
        const std::uint32_t section =
            row.st_shndx != SHN_XINDEX ? row.st_shndx : read_at<std::uint32_t>(indices, 4 * i);
        const bool is_function = ELF64_ST_TYPE(row.st_info) == STT_FUNC;
        if (is_function) m_functions.emplace(Location(section, row.st_value), m_symbols.size());
        m_symbols.push_back({string_at(names, row.st_name), section, row.st_value, row.st_size, is_function});
    }
}

void ElfObject::read_relocations(const Section& section) {
    for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= section.contents.size(); at += sizeof(Elf64_Rela)) {
        const auto row = read_at<Elf64_Rela>(section.contents, at);
        m_relocations.push_back(
            {{section.info, row.r_offset}, {ELF64_R_SYM(row.r_info), static_cast<std::uint64_t>(row.r_addend)}});
    }
}

bool ElfObject::has_undefined(std::string_view name) const {
    return std::any_of(m_symbols.begin(), m_symbols.end(),
                       [&](const Symbol& symbol) { return symbol.section == SHN_UNDEF && symbol.name == name; });
}

std::string ElfObject::contents_of(std::string_view lead) const {
    std::string out;
    for (const Section& each : m_sections) {
        if (begins_with(each.name, lead)) out.append(each.contents).append(1, '\0');
    }
    return out;
}

const ElfObject::Symbol* ElfObject::function_in(const Symbol& holder) const {
    const Location location = {holder.section, holder.value};
    const auto found = std::lower_bound(m_relocations.begin(), m_relocations.end(), std::make_pair(location, Target()));
    if (found == m_relocations.end() || found->first != location) return nullptr;
    const auto [index, addend] = found->second;
    if (index >= m_symbols.size()) return nullptr;
    // The relocation names either the function, or its section and the offset in that section.
    const Symbol& target = m_symbols[index];
    if (target.is_function) return &target;
    const auto function = m_functions.find({target.section, target.value + addend});
    return function == m_functions.end() || target.section == 0 ? nullptr : &m_symbols[function->second];
}

std::string ElfObject::with_section(std::string_view name, std::string_view contents) const {
    auto head = read_at<Elf64_Ehdr>(m_bytes, 0);
    std::string rows(part(m_bytes, head.e_shoff, m_sections.size() * sizeof(Elf64_Shdr)));
    const auto row_at = [&](std::size_t i) { return read_at<Elf64_Shdr>(rows, i * sizeof(Elf64_Shdr)); };
    const auto put = [&](std::size_t i, const Elf64_Shdr& row) {
        std::memcpy(&rows[i * sizeof row], &row, sizeof row);
    };
    std::string out(m_bytes);
    Elf64_Shdr added = {};
    added.sh_type = SHT_PROGBITS;
    added.sh_flags = SHF_EXCLUDE;
    added.sh_addralign = 1;
    append(out, added, contents);
    // The section names are written anew at the end of the file. Symbols may have their names in
    // the same table, so that what was in it keeps its offsets.
    Elf64_Shdr names = row_at(m_names);
    std::string text(m_sections[m_names].contents);
    added.sh_name = static_cast<std::uint32_t>(text.size());
    append(out, names, text.append(name).append(1, '\0'));
    put(m_names, names);
    rows.append(reinterpret_cast<const char*>(&added), sizeof added);
    const std::size_t count = m_sections.size() + 1;
    if (head.e_shnum == 0 || count >= SHN_LORESERVE) {
        Elf64_Shdr first = row_at(0);
        first.sh_size = count;
        put(0, first);
        head.e_shnum = 0;
    } else {
        head.e_shnum = static_cast<Elf64_Half>(count);
    }
    out.resize((out.size() + 7) / 8 * 8);
    head.e_shoff = out.size();
    out += rows;
    std::memcpy(out.data(), &head, sizeof head);
    return out;
}

std::string ElfObject::with_contents(std::string_view name, std::string_view contents) const {
    const auto found =
        std::find_if(m_sections.begin(), m_sections.end(), [&](const Section& each) { return each.name == name; });
    if (found == m_sections.end()) throw Refused{"the object has no section " + std::string(name)};
    const auto head = read_at<Elf64_Ehdr>(m_bytes, 0);
    const std::size_t at = head.e_shoff + static_cast<std::size_t>(found - m_sections.begin()) * sizeof(Elf64_Shdr);
    auto row = read_at<Elf64_Shdr>(m_bytes, at);
    std::string out(m_bytes);
    append(out, row, contents);
    std::memcpy(&out[at], &row, sizeof row);
    return out;
}

}  // namespace lazyck::units
