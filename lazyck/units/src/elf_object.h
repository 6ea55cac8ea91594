// Reads an ELF object as compilers write it, and writes it with a section added or replaced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lazyck::units {

class ElfObject {
 public:
    struct Symbol {
        std::string_view name;
        std::uint32_t section = 0;  // its index; 0 if the symbol is undefined
        std::uint64_t value = 0, size = 0;
        bool is_function = false;
    };

    // `bytes` have to outlive this. Throws Refused if they are not a 64-bit little-endian object.
    explicit ElfObject(std::string_view bytes);

    const std::vector<Symbol>& symbols() const { return m_symbols; }
    bool has_undefined(std::string_view name) const;
    // Returns the contents of all sections whose names begin with `lead`, each followed by a zero
    // byte.
    std::string contents_of(std::string_view lead) const;
    // Returns the function whose address a relocation puts where `holder` stands; null if there is
    // none.
    const Symbol* function_in(const Symbol& holder) const;
    // Returns the object with one more section, which the linker leaves out of programs.
    std::string with_section(std::string_view name, std::string_view contents) const;
    // Returns the object with other contents in its first section called `name`. Throws Refused if
    // there is none.
    std::string with_contents(std::string_view name, std::string_view contents) const;

 private:
    struct Section {
        std::string_view name;
        std::uint32_t type = 0, link = 0, info = 0;
        std::string_view contents;
    };
    using Location = std::pair<std::uint32_t, std::uint64_t>;  // a section, and an offset in it
    using Target = std::pair<std::uint64_t, std::uint64_t>;    // a symbol's index, and what is added to its value

    void read_symbols(const Section& table);
    void read_relocations(const Section& section);

    std::string_view m_bytes;
    std::uint32_t m_names = 0;  // the index of the section that holds the sections' names
    std::vector<Section> m_sections;
    std::vector<Symbol> m_symbols;
    std::vector<std::pair<Location, Target>> m_relocations;  // sorted
    std::map<Location, std::size_t> m_functions;
};

}  // namespace lazyck::units
