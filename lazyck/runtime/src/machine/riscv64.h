#pragma once

#include <dlfcn.h>
#include <sys/auxv.h>

#include "machine/unread_calls.h"

namespace lazyck::rt::machine {

constexpr char k_name[] = "riscv64";

LAZYCK_BARE inline long bare(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
    register long a7 __asm__("a7") = number;
    register long a0 __asm__("a0") = a;
    register long a1 __asm__("a1") = b;
    register long a2 __asm__("a2") = c;
    register long a3 __asm__("a3") = d;
    register long a4 __asm__("a4") = e;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4) : "memory");
    return a0;
}

class FloatingPoint {
 public:
    FloatingPoint() { __asm__ volatile("fscsr %0, zero" : "=r"(m_control)); }
    ~FloatingPoint() { __asm__ volatile("fscsr %0" : : "r"(m_control)); }

 private:
    std::uint64_t m_control = 0;  // the rounding, and the flags; there are no traps
};

inline std::uintptr_t argument(const std::uintptr_t* saved, std::uint32_t number) { return saved[number]; }

// The loader passes a function that asks for extensions since glibc 2.40.
inline void* call_resolver(void* code) {
    const auto resolver = reinterpret_cast<void* (*)(unsigned long, void*, void*)>(code);
    return resolver(getauxval(AT_HWCAP), dlsym(RTLD_DEFAULT, "__riscv_hwprobe"), nullptr);
}

using CpuWords = std::array<std::uint32_t, 6>;

// The kernel tells the extensions that have one letter in the auxiliary vector, and the others by a
// system call, since Linux 6.4.
inline CpuWords cpu_words() {
    constexpr long k_hwprobe = 258;
    constexpr std::int64_t k_extensions = 4, k_more_extensions = 16;
    struct {
        std::int64_t key;
        std::uint64_t value;
    } pairs[] = {{k_extensions, 0}, {k_more_extensions, 0}};
    bare(k_hwprobe, reinterpret_cast<long>(&pairs), std::size(pairs));
    const std::uint64_t values[] = {getauxval(AT_HWCAP), pairs[0].value, pairs[1].value};
    CpuWords words = {};
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(values[i / 2] >> 32 * (i % 2));
    return words;
}

struct CpuLevel {
    const char* option;
    CpuWords words;
};
inline constexpr CpuLevel k_cpu_levels[] = {{nullptr, {}}};

}  // namespace lazyck::rt::machine
