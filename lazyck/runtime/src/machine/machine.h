// Defines what differs between machines, in a file for each (`x86_64.h`) and its assembler text
// (`stub_x86_64.S`). Only this file and `sha256.h` ask the compiler for the machine. Each file
// defines:
//
// - `k_name`, as `machines.py` has it
// - `bare`, a system call. The C library's functions set errno, which belongs to the calling
//   thread, and may be intercepted by a sanitizer.
// - `FloatingPoint`, which saves a thread's settings and flags, sets the defaults, and restores
// - `argument` and `return_address` of a call, from the registers that the trampoline saved; the
//   address is null where machine code is not read (`unread_calls.h`)
// - `call_resolver`, which calls the resolver of an IFUNC as the loader calls it
// - `call_at` and what else reads machine code
// - `CpuWords`, in each bit of which a CPU says that it can do something that compilers may use;
//   `cpu_words`, which asks this CPU; and `k_cpu_levels`, the levels of CPU that a compiler may be
//   asked for, the highest first. An option of null is no level.
#pragma once

#if defined(__x86_64__) && defined(__LP64__)
#define LAZYCK_MACHINE "machine/x86_64.h"
#elif defined(__aarch64__) && defined(__LP64__) && defined(__AARCH64EL__)
#define LAZYCK_MACHINE "machine/aarch64.h"
#elif defined(__riscv) && defined(__LP64__) && defined(__riscv_float_abi_double)
#define LAZYCK_MACHINE "machine/riscv64.h"
#else
#error "lazyck: this machine is not listed: add its files to machine/ (see ARCHITECTURE.md)"
#endif

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>

#define LAZYCK_BARE __attribute__((no_sanitize("address", "thread", "undefined")))

namespace lazyck::rt::machine {

template <typename T>
T value_at(std::uintptr_t address) {
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    return value;
}

// Replaces std::atomic<bool>: to exchange a byte, g++ 12 calls libatomic on riscv64.
using Flag = std::atomic<int>;

// Where a call leads: to code, or to where the address of code lies. Both are 0 if it is no call.
struct CallTarget {
    std::uintptr_t code = 0, memory = 0;
};

}  // namespace lazyck::rt::machine

#include LAZYCK_MACHINE
