#include "platform/elf_view.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lazyck_abi.h"
#include "machine/machine.h"

namespace lazyck::rt {

namespace {

struct MachineRow {
    std::uint16_t number;
    std::string_view name;
    std::uint32_t elf_flags;
};

#define LAZYCK_ROW(number, name, elf_flags, ...) {number, name, elf_flags},
constexpr MachineRow k_machines[] = {LAZYCK_MACHINES(LAZYCK_ROW) LAZYCK_OTHER_MACHINES(LAZYCK_ROW)};
#undef LAZYCK_ROW

constexpr MachineRow row_of(std::string_view name) {
    const MachineRow* row = k_machines;
    while (row->name != name) ++row;
    return *row;
}

constexpr MachineRow k_own = row_of(machine::k_name);

}  // namespace

std::uint16_t own_machine() { return k_own.number; }
std::uint32_t own_elf_flags() { return k_own.elf_flags; }

std::string machine_name(std::uint16_t machine) {
    for (const MachineRow& row : k_machines) {
        if (row.number == machine) return std::string(row.name);
    }
    return "ELF machine " + std::to_string(machine);
}

std::uint16_t machine_of(std::string_view name) {
    for (const MachineRow& row : k_machines) {
        if (row.name == name) return row.number;
    }
    return 0;
}

template <typename T>
std::optional<T> ElfView::read(std::uint64_t offset) const {
    if (offset > m_size || m_size - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, m_data + offset, sizeof value);
    return value;
}

ElfView::ElfView(const unsigned char* data, std::size_t size) : m_data(data), m_size(size) {
    const auto header = read<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
        m_problem = "not an ELF file";
    } else if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) {
        m_problem = "an ELF file of 32 bits, or big-endian";
    }
    if (!m_problem.empty()) return;
    m_machine = header->e_machine;
    std::optional<Elf64_Phdr> dynamic;
    for (std::uint64_t i = 0; i < header->e_phnum; ++i) {
        const auto row = read<Elf64_Phdr>(header->e_phoff + i * sizeof(Elf64_Phdr));
        if (!row) break;
        if (row->p_type == PT_LOAD) m_segments.push_back({row->p_vaddr, row->p_offset, row->p_filesz});
        if (row->p_type == PT_DYNAMIC) dynamic = row;
    }
    if (dynamic) read_dynamic(dynamic->p_offset, dynamic->p_filesz);
}

void ElfView::read_dynamic(std::uint64_t offset, std::uint64_t size) {
    for (std::uint64_t i = 0; i < size / sizeof(Elf64_Dyn); ++i) {
        const auto row = read<Elf64_Dyn>(offset + i * sizeof(Elf64_Dyn));
        if (!row || row->d_tag == DT_NULL) return;
        const std::uint64_t at = offset_of(row->d_un.d_ptr).value_or(0);
        if (row->d_tag == DT_SYMTAB) m_symbols = at;
        if (row->d_tag == DT_STRTAB) m_strings = at;
        if (row->d_tag == DT_GNU_HASH) m_gnu_hash = at;
        if (row->d_tag == DT_HASH) m_sysv_hash = at;
    }
}

std::optional<std::uint64_t> ElfView::offset_of(std::uint64_t address) const {
    for (const Segment& s : m_segments) {
        if (address >= s.address && address - s.address < s.size) return address - s.address + s.offset;
    }
    return std::nullopt;
}

bool ElfView::is_named(std::uint64_t strings, std::uint32_t name_at, std::string_view name) const {
    const std::uint64_t at = strings + name_at;
    if (at > m_size || m_size - at <= name.size()) return false;
    return std::memcmp(m_data + at, name.data(), name.size()) == 0 && m_data[at + name.size()] == 0;
}

std::optional<DynamicSymbol> ElfView::symbol(std::uint64_t index, std::string_view name) const {
    const auto row = read<Elf64_Sym>(m_symbols + index * sizeof(Elf64_Sym));
    if (!row || !is_named(m_strings, row->st_name, name)) return std::nullopt;
    const unsigned type = ELF64_ST_TYPE(row->st_info);
    const unsigned visibility = ELF64_ST_VISIBILITY(row->st_other);
    const bool is_exported = visibility == STV_DEFAULT || visibility == STV_PROTECTED;
    const bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
    if (row->st_shndx == SHN_UNDEF || !is_exported || !is_function) return std::nullopt;
    return DynamicSymbol{row->st_value, type == STT_GNU_IFUNC};
}

std::optional<DynamicSymbol> ElfView::find_function(std::string_view name) const {
    if (m_symbols == 0 || m_strings == 0) return std::nullopt;
    if (m_gnu_hash != 0) return find_by_gnu_hash(name);
    // All symbols are walked, since such files are rare.
    for (std::uint64_t i = 1, count = symbol_count(); i < count; ++i) {
        if (const auto found = symbol(i, name)) return found;
    }
    return std::nullopt;
}

HeaderState ElfView::header_state() const {
    HeaderState most = HeaderState::none;
    for (std::uint64_t i = 1, count = symbol_count(); i < count; ++i) most = std::max(most, header_state_at(i));
    return most;
}

HeaderState ElfView::header_state_at(std::uint64_t index) const {
    const auto row = read<Elf64_Sym>(m_symbols + index * sizeof(Elf64_Sym));
    if (!row || row->st_shndx == SHN_UNDEF || ELF64_ST_VISIBILITY(row->st_other) != STV_DEFAULT)
        return HeaderState::none;
    const unsigned binding = ELF64_ST_BIND(row->st_info), type = ELF64_ST_TYPE(row->st_info);
    if (binding == STB_GNU_UNIQUE) return HeaderState::unique;
    if (binding != STB_WEAK || (type != STT_OBJECT && type != STT_TLS)) return HeaderState::none;
    // Vtables and type information are in every file that needs them, and never change.
    const auto lead = read<std::array<char, 5>>(m_strings + row->st_name);
    const bool is_plain =
        !lead || std::memcmp(lead->data(), "_ZT", 3) != 0 || std::strchr("VITSC", (*lead)[3]) == nullptr;
    return is_plain ? HeaderState::shared : HeaderState::none;
}

// header: buckets, first symbol, words of the filter, shift; filter:u64[]; bucket:u32[];
// chain:u32[] (bit 0 set: last). The chains cover the symbols that the file defines, from `first`
// to the end of the last chain.
std::optional<ElfView::GnuHash> ElfView::gnu_hash() const {
    const auto header = read<std::array<std::uint32_t, 3>>(m_gnu_hash);
    if (!header) return std::nullopt;
    const auto [buckets, first, filter_words] = *header;
    const std::uint64_t bucket_at = m_gnu_hash + 16 + 8 * std::uint64_t{filter_words};
    return GnuHash{buckets, first, bucket_at, bucket_at + 4 * std::uint64_t{buckets}};
}

std::optional<DynamicSymbol> ElfView::find_by_gnu_hash(std::string_view name) const {
    std::uint32_t h = 5381;
    for (const char c : name) h = h * 33 + static_cast<unsigned char>(c);
    const auto table = gnu_hash();
    if (!table || table->buckets == 0) return std::nullopt;
    const auto start = read<std::uint32_t>(table->bucket_at + 4 * std::uint64_t{h % table->buckets});
    if (!start || *start < table->first) return std::nullopt;
    for (std::uint64_t i = *start;; ++i) {
        const auto link = read<std::uint32_t>(table->chain_at + 4 * (i - table->first));
        if (!link) return std::nullopt;
        if ((*link | 1) == (h | 1)) {
            if (const auto found = symbol(i, name)) return found;
        }
        if ((*link & 1) != 0) return std::nullopt;
    }
}

// Returns the number of symbols, but no more than the file has room for; 0 if it is unknown. In the
// older table (buckets, chains; bucket:u32[]; chain:u32[]), it is the number of chains.
std::uint64_t ElfView::symbol_count() const {
    if (m_symbols == 0 || m_strings == 0 || m_symbols > m_size) return 0;
    const std::uint64_t most = (m_size - m_symbols) / sizeof(Elf64_Sym);
    if (m_gnu_hash == 0) {
        const auto count = m_sysv_hash == 0 ? std::nullopt : read<std::uint32_t>(m_sysv_hash + 4);
        return std::min<std::uint64_t>(count.value_or(0), most);
    }
    const auto table = gnu_hash();
    std::uint32_t last = 0;
    for (std::uint64_t i = 0; table && i < table->buckets; ++i) {
        const auto start = read<std::uint32_t>(table->bucket_at + 4 * i);
        if (!start) return 0;
        last = std::max(last, *start);
    }
    if (!table || last < table->first) return 0;
    std::uint64_t end = last;
    for (std::optional<std::uint32_t> link = 0; link && (*link & 1) == 0; ++end)
        link = read<std::uint32_t>(table->chain_at + 4 * (end - table->first));
    return std::min(end, most);
}

std::optional<std::pair<std::size_t, std::size_t>> ElfView::section(std::string_view name) const {
    const auto header = m_problem.empty() ? read<Elf64_Ehdr>(0) : std::nullopt;
    if (!header || header->e_shoff == 0) return std::nullopt;
    const auto row = [&](std::uint64_t i) { return read<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr)); };
    // With more than 65,279 sections, section 0 has the true counts.
    const auto zero = row(0);
    if (!zero) return std::nullopt;
    const std::uint64_t count = header->e_shnum != 0 ? header->e_shnum : zero->sh_size;
    const auto names = row(header->e_shstrndx != SHN_XINDEX ? header->e_shstrndx : zero->sh_link);
    for (std::uint64_t i = 0; names && i < count; ++i) {
        const auto s = row(i);
        if (!s) return std::nullopt;
        if (!is_named(names->sh_offset, s->sh_name, name) || s->sh_type == SHT_NOBITS) continue;
        if (s->sh_offset > m_size || s->sh_size > m_size - s->sh_offset) return std::nullopt;
        return std::make_pair(s->sh_offset, s->sh_size);
    }
    return std::nullopt;
}

}  // namespace lazyck::rt
