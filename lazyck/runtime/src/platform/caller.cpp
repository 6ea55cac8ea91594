// Nothing is disassembled. A byte that looks like a call counts only if it leads exactly to a stub,
// directly or through the linker's jump table. A misreading costs an unnecessary compile, and
// nothing more.
#include "platform/caller.h"

#include <elf.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <optional>

#include "machine/machine.h"

extern "C" {
// Defined by the linker: where this library's file begins in memory.
extern __attribute__((visibility("hidden"), weak)) const Elf64_Ehdr __ehdr_start;
// Defined by the code that lazyck/postbuild/link/stubs.py makes.
extern __attribute__((visibility("hidden"))) std::atomic<void*> lazyck_slots[];
extern __attribute__((visibility("hidden"))) const std::uint32_t lazyck_slot_count;
}

namespace lazyck::rt {

namespace {

using Address = std::uintptr_t;
constexpr std::size_t k_longest_function = 1 << 20;

struct Extent {
    Address begin, end;
    bool has(Address address, std::size_t size) const {
        return address >= begin && address < end && end - address >= size;
    }
};

using machine::value_at;

// This library as the loader mapped it.
class OwnImage {
 public:
    OwnImage() {
        const Elf64_Ehdr* const header = &__ehdr_start;
        if (header == nullptr) return;
        const auto file = reinterpret_cast<Address>(header);
        std::optional<Address> first;
        for (unsigned i = 0; i < header->e_phnum; ++i) {
            const auto program = value_at<Elf64_Phdr>(file + header->e_phoff + i * sizeof(Elf64_Phdr));
            if (program.p_type == PT_LOAD && !first) first = program.p_vaddr - program.p_offset;
        }
        m_base = file - first.value_or(file);
        for (unsigned i = 0; i < header->e_phnum; ++i) {
            const auto program = value_at<Elf64_Phdr>(file + header->e_phoff + i * sizeof(Elf64_Phdr));
            const Extent range = {m_base + program.p_vaddr, m_base + program.p_vaddr + program.p_memsz};
            if (program.p_type == PT_GNU_EH_FRAME) m_frames = range;
            if (program.p_type == PT_DYNAMIC) read_dynamic(range);
            if (program.p_type != PT_LOAD) continue;
            m_loaded.push_back(range);
            if ((program.p_flags & PF_X) != 0) m_code.push_back(range);
        }
    }

    bool is_code(Address address, std::size_t size) const { return is_in(m_code, address, size); }
    bool is_loaded(Address address, std::size_t size) const { return is_in(m_loaded, address, size); }

    // Returns the function at `pc`, from the table that unwinders search, whose rows start where
    // functions do.
    std::optional<Extent> function_at(Address pc) const {
        constexpr std::size_t k_rows = 12;
        constexpr unsigned char k_version = 1, k_count_is_udata4 = 0x03, k_rows_are_datarel_sdata4 = 0x3b;
        const Address table = m_frames.begin;
        if (!m_frames.has(table, k_rows) || value_at<unsigned char>(table) != k_version) return {};
        // The pointer to the frames, which is not needed, has four bytes in this form.
        if ((value_at<unsigned char>(table + 1) & 0x0f) != 0x0b ||
            value_at<unsigned char>(table + 2) != k_count_is_udata4 ||
            value_at<unsigned char>(table + 3) != k_rows_are_datarel_sdata4)
            return {};
        const std::size_t count = value_at<std::uint32_t>(table + 8);
        if (!m_frames.has(table + k_rows, count * 8)) return {};
        const auto start_of = [&](std::size_t row) {
            return table +
                   static_cast<Address>(static_cast<std::int64_t>(value_at<std::int32_t>(table + k_rows + row * 8)));
        };
        std::size_t low = 0, high = count;  // becomes the first row behind pc
        while (low < high) {
            const std::size_t middle = low + (high - low) / 2;
            if (start_of(middle) <= pc)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == 0 || low == count) return {};
        const Extent found = {start_of(low - 1), start_of(low)};
        const bool is_usable =
            found.end - found.begin <= k_longest_function && is_code(found.begin, found.end - found.begin);
        return is_usable ? std::optional<Extent>(found) : std::nullopt;
    }

    std::string_view jump_symbol(std::size_t row) const {
        if (row >= m_jump_count || m_symbols == 0 || m_strings == 0) return "";
        const auto relocation = value_at<Elf64_Rela>(m_jumps + row * sizeof(Elf64_Rela));
        const Address symbol = m_symbols + ELF64_R_SYM(relocation.r_info) * sizeof(Elf64_Sym);
        if (!is_loaded(symbol, sizeof(Elf64_Sym))) return "";
        return reinterpret_cast<const char*>(m_strings + value_at<Elf64_Sym>(symbol).st_name);
    }

 private:
    void read_dynamic(const Extent& section) {
        for (Address at = section.begin; section.has(at, sizeof(Elf64_Dyn)); at += sizeof(Elf64_Dyn)) {
            const auto entry = value_at<Elf64_Dyn>(at);
            const Address value = entry.d_un.d_ptr;
            // The loader may have added the base to the address that the file has.
            const Address address = value < m_base ? m_base + value : value;
            if (entry.d_tag == DT_NULL) return;
            if (entry.d_tag == DT_JMPREL) m_jumps = address;
            if (entry.d_tag == DT_PLTRELSZ) m_jump_count = value / sizeof(Elf64_Rela);
            if (entry.d_tag == DT_SYMTAB) m_symbols = address;
            if (entry.d_tag == DT_STRTAB) m_strings = address;
        }
    }
    static bool is_in(const std::vector<Extent>& ranges, Address address, std::size_t size) {
        return std::any_of(ranges.begin(), ranges.end(), [&](const Extent& r) { return r.has(address, size); });
    }

    Address m_base = 0, m_jumps = 0, m_symbols = 0, m_strings = 0;
    std::size_t m_jump_count = 0;
    Extent m_frames = {0, 0};
    std::vector<Extent> m_loaded, m_code;
};

std::int64_t slot_in(Address memory) {
    const auto slots = reinterpret_cast<Address>(&lazyck_slots[0]);
    const Address offset = memory - slots;
    if (memory < slots || offset % sizeof(void*) != 0 || offset / sizeof(void*) >= lazyck_slot_count) return -1;
    return static_cast<std::int64_t>(offset / sizeof(void*));
}

// Returns the slot of the stub whose address the linker's table has in `memory`, or will have, or
// -1.
std::int64_t slot_behind(const OwnImage& image, Address memory,
                         const std::function<std::int64_t(std::string_view)>& slot_of) {
    if (!image.is_loaded(memory, sizeof(Address))) return -1;
    const auto code = value_at<Address>(memory);
    if (!image.is_code(code, machine::k_longest_jump)) return -1;
    if (const Address next = machine::jump_at(code)) return slot_in(next);
    // The row is not bound yet: its code pushes its number.
    const auto row = machine::number_pushed_at(code);
    return row ? slot_of(image.jump_symbol(*row)) : -1;
}

// Returns the slot of the lazy function that an instruction at `at` calls, or -1 if it calls none.
std::int64_t slot_called_at(const OwnImage& image, Address at,
                            const std::function<std::int64_t(std::string_view)>& slot_of) {
    const machine::CallTarget call = machine::call_at(at);
    if (call.memory != 0) return slot_behind(image, call.memory, slot_of);
    if (!image.is_code(call.code, machine::k_longest_jump)) return -1;
    const Address memory = machine::jump_at(call.code);
    if (memory == 0) return -1;
    const std::int64_t own = slot_in(memory);
    return own >= 0 ? own : slot_behind(image, memory, slot_of);
}

}  // namespace

std::vector<std::uint32_t> slots_called_beside(const void* return_address, std::size_t most,
                                               const std::function<std::int64_t(std::string_view)>& slot_of) {
    if (return_address == nullptr) return {};
    const OwnImage image;
    // A call may be a function's last instruction, so the return address may lie behind the
    // function.
    const auto function = image.function_at(reinterpret_cast<Address>(return_address) - 1);
    std::vector<std::uint32_t> found;
    if (!function) return found;
    for (Address at = function->begin; at + machine::k_longest_call <= function->end; ++at) {
        const std::int64_t slot = slot_called_at(image, at, slot_of);
        if (slot < 0 || std::find(found.begin(), found.end(), slot) != found.end()) continue;
        if (found.size() == most) return {};
        found.push_back(static_cast<std::uint32_t>(slot));
    }
    return found;
}

std::string_view template_of(std::string_view mangled) {
    if (mangled.substr(0, 2) != "_Z") return "";
    std::size_t at = 2;
    if (at < mangled.size() && mangled[at] == 'N') ++at;
    while (true) {
        std::size_t length = 0;
        const auto [behind, error] = std::from_chars(mangled.data() + at, mangled.data() + mangled.size(), length);
        at = static_cast<std::size_t>(behind - mangled.data());
        if (error != std::errc() || length >= mangled.size() - at) return "";
        at += length;
        if (mangled[at] == 'I') return mangled.substr(0, at);
    }
}

}  // namespace lazyck::rt
