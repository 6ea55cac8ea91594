// The program's floating-point settings are its own. With its traps on, or with its rounding, our
// sums of seconds would end the program or come out wrong. In a library that was linked ahead of
// time, blobs' initializers ran with default settings, too.
#pragma once

#include <cstdint>

namespace lazyck::rt {

// Gives the calling thread default settings until the object's end, which restores the earlier
// settings and flags. It uses assembly, because the C library's functions (<cfenv>) are in libm,
// which a lazy library need not have.
class DefaultFloatingPoint {
 public:
#if defined(__x86_64__)
    DefaultFloatingPoint() {
        __asm__ volatile("stmxcsr %0" : "=m"(m_vector));
        __asm__ volatile("fnstenv %0" : "=m"(m_x87));
        const std::uint32_t vector = 0x1f80;  // all traps masked, rounding to nearest
        const std::uint16_t x87 = 0x37f;
        __asm__ volatile("ldmxcsr %0" : : "m"(vector));
        __asm__ volatile("fnclex; fldcw %0" : : "m"(x87));
    }
    ~DefaultFloatingPoint() {
        __asm__ volatile("fnclex; fldenv %0" : : "m"(m_x87));
        __asm__ volatile("ldmxcsr %0" : : "m"(m_vector));
    }

 private:
    struct X87 {
        std::uint32_t words[7];
    };
    std::uint32_t m_vector = 0;
    X87 m_x87 = {};
#elif defined(__aarch64__)
    DefaultFloatingPoint() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(m_control));
        __asm__ volatile("mrs %0, fpsr" : "=r"(m_status));
        __asm__ volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
    }
    ~DefaultFloatingPoint() {
        __asm__ volatile("msr fpsr, %0" : : "r"(m_status));
        __asm__ volatile("msr fpcr, %0" : : "r"(m_control));
    }

 private:
    std::uint64_t m_control = 0, m_status = 0;
#endif

 public:
    DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
    DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;
};

}  // namespace lazyck::rt
