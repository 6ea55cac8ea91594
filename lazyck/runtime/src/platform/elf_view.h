// Reads the dynamic symbols or a section of an ELF file of any machine. Trusts nothing in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lazyck::rt {

// Machines have a number and flags in ELF files, and the name that `uname -m` prints. These are of
// the machine that the code was compiled for.
std::uint16_t own_machine();
std::uint32_t own_elf_flags();

// Returns the machine's name, such as "aarch64", or "ELF machine 8" if it has no name here.
std::string machine_name(std::uint16_t machine);

// Returns the number of the machine called `name`, or 0 if the name is unknown.
std::uint16_t machine_of(std::string_view name);

struct DynamicSymbol {
    std::uint64_t value;  // relative to the load base
    bool is_ifunc;        // `value` is the address of a function that returns the function
};

// If a variable is `unique`, a process has one definition of it, and the loader never unloads the
// library whose definition that is.
enum class HeaderState : std::uint64_t { none, shared, unique };

class ElfView {
 public:
    // `problem()` is not empty if this is no 64-bit little-endian ELF file.
    ElfView(const unsigned char* data, std::size_t size);

    const std::string& problem() const { return m_problem; }
    std::uint16_t machine() const { return m_machine; }

    // Finds a function that the file defines and exports.
    std::optional<DynamicSymbol> find_function(std::string_view name) const;

    // Returns whether the file exports variables that other libraries may define, too (inline
    // variables, statics of templates and of inline functions), so that only one of the definitions
    // may be used.
    HeaderState header_state() const;

    // Returns the offset and the size of the contents of the named section.
    std::optional<std::pair<std::size_t, std::size_t>> section(std::string_view name) const;

 private:
    struct Segment {
        std::uint64_t address, offset, size;
    };
    struct GnuHash {
        std::uint32_t buckets, first;
        std::uint64_t bucket_at, chain_at;
    };

    template <typename T>
    std::optional<T> read(std::uint64_t offset) const;
    std::optional<std::uint64_t> offset_of(std::uint64_t address) const;
    HeaderState header_state_at(std::uint64_t index) const;
    std::uint64_t symbol_count() const;
    std::optional<GnuHash> gnu_hash() const;
    bool is_named(std::uint64_t strings, std::uint32_t name_at, std::string_view name) const;
    std::optional<DynamicSymbol> symbol(std::uint64_t index, std::string_view name) const;
    std::optional<DynamicSymbol> find_by_gnu_hash(std::string_view name) const;
    void read_dynamic(std::uint64_t offset, std::uint64_t size);

    const unsigned char* m_data;
    std::size_t m_size;
    std::string m_problem;
    std::uint16_t m_machine = 0;
    std::vector<Segment> m_segments;
    std::uint64_t m_symbols = 0, m_strings = 0, m_gnu_hash = 0, m_sysv_hash = 0;  // file offsets; 0: none
};

}  // namespace lazyck::rt
