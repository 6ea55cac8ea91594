#include "store/private_names.h"

#include <elf.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/failure.h"
#include "bundle/manifest_view.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

// Reads the parts of an object that name its symbols. Rows are copied, since the bytes of a file
// may lie at any address.
class SymbolNames {
 public:
    SymbolNames(const unsigned char* data, std::size_t size) : m_data(data), m_size(size) {
        Elf64_Ehdr header;
        if (!copy(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
            header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) {
            return;
        }
        Elf64_Shdr table;
        std::uint64_t count = header.e_shnum;
        if (count == 0 && copy(header.e_shoff, &table, sizeof table)) count = table.sh_size;
        for (std::uint64_t i = 0; i < count; ++i) {
            if (!copy(header.e_shoff + i * sizeof table, &table, sizeof table)) return;
            if (table.sh_type != SHT_SYMTAB) continue;
            strings_header = header.e_shoff + table.sh_link * sizeof table;
            if (table.sh_link >= count || !copy(strings_header, &strings, sizeof strings)) return;
            if (strings.sh_offset > m_size || strings.sh_size > m_size - strings.sh_offset) return;
            rows_at = table.sh_offset;
            rows.resize(table.sh_size / sizeof(Elf64_Sym) <= m_size / sizeof(Elf64_Sym)
                            ? table.sh_size / sizeof(Elf64_Sym)
                            : 0);
            is_read = !rows.empty() && copy(rows_at, rows.data(), rows.size() * sizeof(Elf64_Sym));
            return;
        }
    }

    std::string_view name(const Elf64_Sym& row) const {
        if (row.st_name >= strings.sh_size) return {};
        const char* const text = reinterpret_cast<const char*>(m_data) + strings.sh_offset + row.st_name;
        return {text, strnlen(text, strings.sh_size - row.st_name)};
    }

    bool is_read = false;
    std::vector<Elf64_Sym> rows;
    std::uint64_t rows_at = 0, strings_header = 0;  // offsets in the file
    Elf64_Shdr strings = {};

 private:
    bool copy(std::uint64_t at, void* to, std::size_t size) const {
        if (at > m_size || size > m_size - at) return false;
        std::memcpy(to, m_data + at, size);
        return true;
    }

    const unsigned char* m_data;
    std::size_t m_size;
};

void write_at(int fd, std::uint64_t at, const void* data, std::size_t size) {
    const bool is_there = lseek(fd, static_cast<off_t>(at), SEEK_SET) >= 0;
    if (!is_there || !write_all(fd, {static_cast<const char*>(data), size}))
        fail_system("cannot rename symbols of what was compiled", errno);
}

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

// Returns whether a symbol has a mangled name, and is neither of namespace `std` or the compiler's
// support library, whose declarations are visible whatever options say, nor type information, which
// is compared by name.
bool is_of_users(std::string_view name) {
    if (!starts_with(name, "_Z") || starts_with(name, "_ZTI") || starts_with(name, "_ZTS")) return false;
    name.remove_prefix(2);
    for (const char* lead : {"GV", "TV", "TT", "Z", "N", "K"})
        if (starts_with(name, lead)) name.remove_prefix(std::string_view(lead).size());
    return name.empty() || (name[0] != 'S' && !starts_with(name, "9__gnu_cxx") && !starts_with(name, "10__cxxabiv1"));
}

// Returns whether a row is of what several files of a library may define: inline functions,
// members of templates, their statics.
bool is_vague(const Elf64_Sym& row) { return row.st_shndx != SHN_UNDEF && ELF64_ST_BIND(row.st_info) == STB_WEAK; }

}  // namespace

std::string give_private_names(int fd, const Strings& private_names, std::string_view tag, const Strings& own) {
    if (private_names.empty()) return "";
    const std::unordered_set<std::string_view> own_names(own.begin(), own.end());
    const std::unordered_set<std::string_view> names(private_names.begin(), private_names.end());
    const bool hides = names.count(LAZYCK_PRIVATE_LEAD) != 0;
    MappedFile file;
    if (const int error = file.map(fd)) fail_system("cannot read what was compiled", error);
    SymbolNames object(file.data(), file.size());
    if (!object.is_read) return "it is no ELF object whose symbols could be renamed";
    // The old table is kept whole: it may serve as the table of section names too, and names in it
    // may share their ends.
    std::string text(reinterpret_cast<const char*>(file.data()) + object.strings.sh_offset, object.strings.sh_size);
    for (Elf64_Sym& row : object.rows) {
        if (ELF64_ST_BIND(row.st_info) == STB_LOCAL) continue;
        const std::string_view plain = object.name(row);
        const std::string name = private_name(plain, tag);
        if (names.find(name) == names.end()) {
            if (!hides || !is_vague(row) || !is_of_users(plain) || own_names.count(plain) != 0) continue;
            if (names.count(private_name(plain, std::string(LAZYCK_PLAIN_TAG).append(tag))) != 0) continue;
            // The state of a class that an attribute exports is one in the process.
            const bool is_state = ELF64_ST_TYPE(row.st_info) != STT_FUNC && !starts_with(plain, "_ZT");
            if (!is_state) row.st_other = static_cast<unsigned char>((row.st_other & ~3U) | STV_HIDDEN);
            continue;
        }
        row.st_name = static_cast<Elf64_Word>(text.size());
        text.append(name).push_back('\0');
    }
    object.strings.sh_offset = file.size();
    object.strings.sh_size = text.size();
    write_at(fd, object.strings.sh_offset, text.data(), text.size());
    write_at(fd, object.rows_at, object.rows.data(), object.rows.size() * sizeof(Elf64_Sym));
    write_at(fd, object.strings_header, &object.strings, sizeof object.strings);
    return "";
}

}  // namespace lazyck::rt
