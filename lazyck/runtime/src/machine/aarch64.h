#pragma once

#include <sys/auxv.h>

#include "machine/unread_calls.h"

namespace lazyck::rt::machine {

constexpr char k_name[] = "aarch64";

LAZYCK_BARE inline long bare(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}

class FloatingPoint {
 public:
    FloatingPoint() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(m_control));
        __asm__ volatile("mrs %0, fpsr" : "=r"(m_status));
        __asm__ volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
    }
    ~FloatingPoint() {
        __asm__ volatile("msr fpsr, %0" : : "r"(m_status));
        __asm__ volatile("msr fpcr, %0" : : "r"(m_control));
    }

 private:
    std::uint64_t m_control = 0, m_status = 0;
};

inline std::uintptr_t argument(const std::uintptr_t* saved, std::uint32_t number) { return saved[number]; }

inline void* call_resolver(void* code) {
    const unsigned long capabilities[] = {3 * sizeof(unsigned long), getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
    constexpr unsigned long has_argument = 1UL << 62;
    const auto resolver = reinterpret_cast<void* (*)(unsigned long, const unsigned long*)>(code);
    return resolver(capabilities[1] | has_argument, capabilities);
}

using CpuWords = std::array<std::uint32_t, 4>;

inline CpuWords cpu_words() {
    const std::uint64_t first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    const auto low = [](std::uint64_t both) { return static_cast<std::uint32_t>(both); };
    return {low(first), low(first >> 32), low(second), low(second >> 32)};
}

struct CpuLevel {
    const char* option;
    CpuWords words;
};
inline constexpr CpuLevel k_cpu_levels[] = {{nullptr, {}}};

}  // namespace lazyck::rt::machine
