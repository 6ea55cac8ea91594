#pragma once

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

}  // namespace lazyck::rt::machine
