// __hip_bfloat16 and __hip_bfloat162. Arithmetic goes through float and rounds once.
#pragma once
#pragma GCC system_header

#ifdef __cplusplus
#include <fake_rocm/narrow_float.h>
#include <hip/hip_vector_types.h>

#include <cmath>
#include <type_traits>

struct __hip_bfloat16_raw {
    unsigned short x;
};

// The type is trivial, so that it can lie in shared memory.
struct __hip_bfloat16 {
    unsigned short __x;

    __hip_bfloat16() = default;
    __hip_bfloat16(const __hip_bfloat16_raw& raw) : __x(raw.x) {}
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    __hip_bfloat16(T value) : __x(fake_rocm::bfloat16_bits(static_cast<float>(value))) {}

    operator float() const { return fake_rocm::float_of_bfloat16(__x); }
    operator __hip_bfloat16_raw() const { return {__x}; }
};
FAKE_ROCM_NARROW_OPERATORS(__hip_bfloat16)

struct alignas(4) __hip_bfloat162 {
    __hip_bfloat16 x, y;

    __hip_bfloat162() = default;
    __hip_bfloat162(__hip_bfloat16 x_, __hip_bfloat16 y_) : x(x_), y(y_) {}
};

static inline __hip_bfloat16 __float2bfloat16(float x) { return __hip_bfloat16(x); }
static inline __hip_bfloat16 __float2bfloat16_rn(float x) { return __hip_bfloat16(x); }
static inline __hip_bfloat16 __double2bfloat16(double x) { return __hip_bfloat16(x); }
static inline float __bfloat162float(__hip_bfloat16 x) { return static_cast<float>(x); }
static inline __hip_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __hip_bfloat16(__hip_bfloat16_raw{x}); }
static inline unsigned short __bfloat16_as_ushort(__hip_bfloat16 x) { return x.__x; }
static inline __hip_bfloat16 __hadd(__hip_bfloat16 a, __hip_bfloat16 b) { return a + b; }
static inline __hip_bfloat16 __hsub(__hip_bfloat16 a, __hip_bfloat16 b) { return a - b; }
static inline __hip_bfloat16 __hmul(__hip_bfloat16 a, __hip_bfloat16 b) { return a * b; }
static inline __hip_bfloat16 __hdiv(__hip_bfloat16 a, __hip_bfloat16 b) { return a / b; }
static inline __hip_bfloat16 __hneg(__hip_bfloat16 a) { return -a; }
static inline __hip_bfloat16 __habs(__hip_bfloat16 a) { return __ushort_as_bfloat16(a.__x & 0x7fff); }
static inline __hip_bfloat16 __hfma(__hip_bfloat16 a, __hip_bfloat16 b, __hip_bfloat16 c) {
    return __hip_bfloat16(fmaf(a, b, c));
}
static inline __hip_bfloat16 __hmax(__hip_bfloat16 a, __hip_bfloat16 b) { return __hip_bfloat16(fmaxf(a, b)); }
static inline __hip_bfloat16 __hmin(__hip_bfloat16 a, __hip_bfloat16 b) { return __hip_bfloat16(fminf(a, b)); }

static inline __hip_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__hip_bfloat16(a), __hip_bfloat16(b)}; }
static inline __hip_bfloat162 __float22bfloat162_rn(float2 a) { return __floats2bfloat162_rn(a.x, a.y); }
static inline float2 __bfloat1622float2(__hip_bfloat162 a) {
    return {static_cast<float>(a.x), static_cast<float>(a.y)};
}
static inline __hip_bfloat162 __hadd2(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.x + b.x, a.y + b.y}; }
static inline __hip_bfloat162 __hmul2(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.x * b.x, a.y * b.y}; }
#endif
