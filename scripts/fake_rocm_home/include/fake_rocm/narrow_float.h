// Converts between float and the bits of 16-bit floats, rounding to nearest even. This is done in
// software, so that every host compiler gives the same bits. float has enough digits that one
// rounding after +, -, *, / is the correct one.
#pragma once
#pragma GCC system_header

#include <stdint.h>
#include <string.h>

#include <type_traits>

namespace fake_rocm {

inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}
inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// Drops the lower `shift` bits, rounding to nearest even.
inline uint32_t shift_right_to_even(uint32_t value, unsigned int shift) {
    const uint32_t half = uint32_t{1} << (shift - 1);
    const uint32_t odd = value >> shift & 1;
    return (value + half - 1 + odd) >> shift;
}

inline uint16_t half_bits(float value) {
    const uint32_t bits = bits_of(value);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));  // NaN
    if (magnitude >= 0x47800000) return sign | 0x7c00;  // 2^16 and above: infinity
    if (magnitude >= 0x38800000)                        // 2^-14 and above: normal; rounding may carry into infinity
        return static_cast<uint16_t>(sign | shift_right_to_even(magnitude - 0x38000000, 13));
    if (magnitude < 0x33000000) return sign;  // below half of the smallest subnormal
    const unsigned int exponent = magnitude >> 23;
    return static_cast<uint16_t>(sign | shift_right_to_even((magnitude & 0x7fffff) | 0x800000, 126 - exponent));
}

inline float float_of_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude >= 0x0400) return float_of(sign | ((magnitude << 13) + 0x38000000));
    const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;  // 2^-24, the subnormals' step
    return float_of(sign | bits_of(value));
}

inline uint16_t bfloat16_bits(float value) {
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays NaN
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float float_of_bfloat16(uint16_t value) { return float_of(static_cast<uint32_t>(value) << 16); }

}  // namespace fake_rocm

// Defines arithmetic and comparison through float, for a type that converts to and from it. With a
// number on one side the result is a float.
#define FAKE_ROCM_NARROW_ARITHMETIC(TYPE, OP)                                                                       \
    static inline TYPE operator OP(TYPE a, TYPE b) { return TYPE(static_cast<float>(a) OP static_cast<float>(b)); } \
    static inline TYPE& operator OP##=(TYPE & a, TYPE b) { return a = a OP b; }                                     \
    FAKE_ROCM_NARROW_MIXED(TYPE, OP, float)
#define FAKE_ROCM_NARROW_COMPARISON(TYPE, OP)                                                                 \
    static inline bool operator OP(TYPE a, TYPE b) { return static_cast<float>(a) OP static_cast<float>(b); } \
    FAKE_ROCM_NARROW_MIXED(TYPE, OP, bool)
#define FAKE_ROCM_NARROW_MIXED(TYPE, OP, RESULT)                          \
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> \
    RESULT operator OP(TYPE a, T b) {                                     \
        return static_cast<float>(a) OP static_cast<float>(b);            \
    }                                                                     \
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> \
    RESULT operator OP(T a, TYPE b) {                                     \
        return static_cast<float>(a) OP static_cast<float>(b);            \
    }
#define FAKE_ROCM_NARROW_OPERATORS(TYPE)                                          \
    static inline TYPE operator-(TYPE a) { return TYPE(-static_cast<float>(a)); } \
    FAKE_ROCM_NARROW_ARITHMETIC(TYPE, +)                                          \
    FAKE_ROCM_NARROW_ARITHMETIC(TYPE, -)                                          \
    FAKE_ROCM_NARROW_ARITHMETIC(TYPE, *)                                          \
    FAKE_ROCM_NARROW_ARITHMETIC(TYPE, /)                                          \
    FAKE_ROCM_NARROW_COMPARISON(TYPE, ==)                                         \
    FAKE_ROCM_NARROW_COMPARISON(TYPE, !=)                                         \
    FAKE_ROCM_NARROW_COMPARISON(TYPE, <)                                          \
    FAKE_ROCM_NARROW_COMPARISON(TYPE, >)                                          \
    FAKE_ROCM_NARROW_COMPARISON(TYPE, <=)                                         \
    FAKE_ROCM_NARROW_COMPARISON(TYPE, >=)
