// Reads an ELF file of any machine: dynamic symbols by either hash table, and sections by name.
#include "platform/elf_view.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const lazyck::rt::ElfView elf(data, size);
    static volatile std::size_t s_found;
    for (const char* name : {"_Z3addii", "value", "", "nothing"}) s_found += elf.find_function(name).has_value();
    if (const auto section = elf.section(".lazyck.manifest")) {
        const auto [at, length] = *section;
        if (at > size || length > size - at) __builtin_trap();
        for (std::size_t i = 0; i < length; ++i) s_found += data[at + i];
    }
    return 0;
}
