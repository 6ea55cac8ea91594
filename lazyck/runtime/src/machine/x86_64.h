#pragma once

#include <cpuid.h>

namespace lazyck::rt::machine {

constexpr char k_name[] = "x86_64";

LAZYCK_BARE inline long bare(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

class FloatingPoint {
 public:
    FloatingPoint() {
        __asm__ volatile("stmxcsr %0" : "=m"(m_vector));
        __asm__ volatile("fnstenv %0" : "=m"(m_x87));
        const std::uint32_t vector = 0x1f80;  // all traps masked, rounding to nearest
        const std::uint16_t x87 = 0x37f;
        __asm__ volatile("ldmxcsr %0" : : "m"(vector));
        __asm__ volatile("fnclex; fldcw %0" : : "m"(x87));
    }
    ~FloatingPoint() {
        __asm__ volatile("fnclex; fldenv %0" : : "m"(m_x87));
        __asm__ volatile("ldmxcsr %0" : : "m"(m_vector));
    }

 private:
    struct X87 {
        std::uint32_t words[7];
    };
    std::uint32_t m_vector = 0;
    X87 m_x87 = {};
};

// The trampoline pushes the arguments, below the number that it was told and the return address.
inline std::uintptr_t argument(const std::uintptr_t* saved, std::uint32_t number) { return *(saved - number); }
inline const void* return_address(const std::uintptr_t* saved) { return reinterpret_cast<const void*>(saved[4]); }

inline void* call_resolver(void* code) { return reinterpret_cast<void* (*)()>(code)(); }

constexpr std::size_t k_longest_call = 6, k_longest_jump = 16;

inline std::uintptr_t relative(std::uintptr_t behind) {
    return behind + static_cast<std::uintptr_t>(static_cast<std::int64_t>(value_at<std::int32_t>(behind - 4)));
}

inline CallTarget call_at(std::uintptr_t at) {
    const auto first = value_at<unsigned char>(at);
    if (first == 0xff && value_at<unsigned char>(at + 1) == 0x15) return {0, relative(at + 6)};
    return first == 0xe8 || first == 0xe9 ? CallTarget{relative(at + 5), 0} : CallTarget();
}

inline std::uintptr_t after_landing(std::uintptr_t code) {
    constexpr std::uint32_t k_endbr64 = 0xfa1e0ff3;
    return value_at<std::uint32_t>(code) == k_endbr64 ? code + 4 : code;
}

inline std::uintptr_t jump_at(std::uintptr_t code) {
    constexpr unsigned char k_bnd = 0xf2;
    std::uintptr_t at = after_landing(code);
    if (value_at<unsigned char>(at) == k_bnd) ++at;
    return value_at<unsigned char>(at) == 0xff && value_at<unsigned char>(at + 1) == 0x25 ? relative(at + 6) : 0;
}

inline std::optional<std::uint32_t> number_pushed_at(std::uintptr_t code) {
    const std::uintptr_t push = after_landing(code);
    if (value_at<unsigned char>(push) != 0x68) return std::nullopt;
    return value_at<std::uint32_t>(push + 1);
}

template <typename... Number>
constexpr std::uint32_t bits(Number... number) {
    return ((1U << number) | ... | 0U);
}

// Names a register that `cpuid` fills, and those of its bits that say nothing of what programs may
// do: they are about kernels, virtual machines, debuggers and faults of the CPU. All others count,
// also those that have no meaning yet.
struct CpuRegister {
    std::uint32_t leaf, subleaf;
    enum Name { a, b, c, d } name;
    std::uint32_t others;
};

inline constexpr CpuRegister k_cpu_registers[] = {
    {1, 0, CpuRegister::c, bits(2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 17, 18, 21, 24, 31)},
    {7, 0, CpuRegister::b, bits(1, 2, 6, 7, 9, 10, 12, 13, 15, 20, 22, 25)},
    {7, 0, CpuRegister::c, bits(2, 13, 16, 17, 18, 19, 20, 21, 24, 30, 31)},
    {7, 0, CpuRegister::d, bits(1, 4, 9, 10, 11, 13, 15, 19, 26, 27, 28, 29, 30, 31)},
    {7, 1, CpuRegister::a, bits(10, 11, 12, 17, 18, 20, 22, 26)},
    {7, 1, CpuRegister::d, bits(18)},
    {0xd, 1, CpuRegister::a, bits(4)},
    {0x14, 0, CpuRegister::b, ~bits(4)},
    {0x19, 0, CpuRegister::b, 0},
    {0x24, 0, CpuRegister::b, 0},
    {0x80000001, 0, CpuRegister::c, bits(1, 2, 3, 4, 7, 9, 10, 12, 13, 17, 19, 22, 23, 24, 26, 27, 28)},
    {0x80000001, 0, CpuRegister::d, ~bits(30, 31)},
    {0x80000008, 0, CpuRegister::b, ~bits(0, 4, 8, 9)},
};

// The last word is that of `xgetbv`: the registers that the kernel saves.
using CpuWords = std::array<std::uint32_t, std::size(k_cpu_registers) + 1>;

inline CpuWords cpu_words() {
    constexpr std::uint32_t k_has_xgetbv = bits(27);
    CpuWords words = {};
    for (std::size_t i = 0; i < std::size(k_cpu_registers); ++i) {
        const CpuRegister& from = k_cpu_registers[i];
        std::uint32_t values[4] = {};
        __get_cpuid_count(from.leaf, from.subleaf, &values[0], &values[1], &values[2], &values[3]);
        words[i] = values[from.name] & ~from.others;
    }
    std::uint32_t high = 0;
    if ((words[0] & k_has_xgetbv) != 0) __asm__ volatile("xgetbv" : "=a"(words.back()), "=d"(high) : "c"(0));
    return words;
}

struct CpuLevel {
    const char* option;
    CpuWords words;
};

// The levels of the System V ABI.
constexpr CpuWords level_words(std::uint32_t first, std::uint32_t seventh, std::uint32_t extended,
                               std::uint32_t saved) {
    CpuWords words = {};
    words[0] = first;
    words[1] = seventh;
    words[10] = extended;
    words[words.size() - 1] = saved;
    return words;
}
inline constexpr CpuWords k_second = level_words(bits(0, 9, 13, 19, 20, 23), 0, bits(0), 0);
inline constexpr CpuWords k_third =
    level_words(k_second[0] | bits(12, 22, 27, 28, 29), bits(3, 5, 8), bits(0, 5), bits(1, 2));
inline constexpr CpuWords k_fourth =
    level_words(k_third[0], k_third[1] | bits(16, 17, 28, 30, 31), bits(0, 5), bits(1, 2, 5, 6, 7));
inline constexpr CpuLevel k_cpu_levels[] = {
    {"-march=x86-64-v4", k_fourth}, {"-march=x86-64-v3", k_third}, {"-march=x86-64-v2", k_second}};

}  // namespace lazyck::rt::machine
