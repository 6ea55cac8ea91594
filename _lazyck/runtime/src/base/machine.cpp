#include "base/machine.h"

#include <elf.h>

namespace lazyck::rt {

namespace {

struct Row {
    std::uint16_t machine;
    const char* name;
};

// Lists the machines that lazyck has stubs for, and others that a user may meet in a message.
// _lazyck/postbuild/objects/elf.py has a copy of this table.
constexpr Row k_machines[] = {{EM_X86_64, "x86_64"}, {EM_AARCH64, "aarch64"}, {EM_386, "i386"},   {EM_ARM, "arm"},
                              {EM_RISCV, "riscv"},   {EM_PPC64, "ppc64"},     {EM_S390, "s390x"}, {258, "loongarch64"}};

}  // namespace

std::uint16_t own_machine() {
#if defined(__x86_64__) && defined(__LP64__)
    return EM_X86_64;
#elif defined(__aarch64__) && defined(__LP64__) && defined(__AARCH64EL__)
    return EM_AARCH64;
#else
#error "lazyck runs on x86-64 and little-endian aarch64"
#endif
}

std::string machine_name(std::uint16_t machine) {
    for (const Row& row : k_machines) {
        if (row.machine == machine) return row.name;
    }
    return "ELF machine " + std::to_string(machine);
}

std::uint16_t machine_of(std::string_view name) {
    for (const Row& row : k_machines) {
        if (row.name == name) return row.machine;
    }
    return 0;
}

}  // namespace lazyck::rt
