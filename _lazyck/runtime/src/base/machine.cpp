#include "base/machine.h"

#include <elf.h>

#include "lazyck_abi.h"

namespace lazyck::rt {

namespace {

struct Row {
    std::uint16_t machine;
    const char* name;
};

#define LAZYCK_ROW(number, name, ...) {number, name},
constexpr Row k_machines[] = {LAZYCK_MACHINES(LAZYCK_ROW) LAZYCK_OTHER_MACHINES(LAZYCK_ROW)};
#undef LAZYCK_ROW

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
