// __half and __half2. Arithmetic goes through float and rounds once.
#pragma once
#pragma GCC system_header

#ifdef __cplusplus
#include <fake_rocm/narrow_float.h>

#include <cmath>
#include <type_traits>

struct __half_raw {
    unsigned short x;
};

// The type is trivial, so that it can lie in shared memory.
struct __half {
    unsigned short __x;

    __half() = default;
    __half(const __half_raw& raw) : __x(raw.x) {}
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    __half(T value) : __x(fake_rocm::half_bits(static_cast<float>(value))) {}

    operator float() const { return fake_rocm::float_of_half(__x); }
    operator __half_raw() const { return {__x}; }
};
using half = __half;
FAKE_ROCM_NARROW_OPERATORS(__half)

struct alignas(4) __half2 {
    __half x, y;

    __half2() = default;
    __half2(__half x_, __half y_) : x(x_), y(y_) {}
};
using half2 = __half2;

static inline __half __float2half(float x) { return __half(x); }
static inline __half __float2half_rn(float x) { return __half(x); }
static inline __half __double2half(double x) { return __half(x); }
static inline __half __int2half_rn(int x) { return __half(x); }
static inline __half __uint2half_rn(unsigned int x) { return __half(x); }
static inline float __half2float(__half x) { return static_cast<float>(x); }
static inline int __half2int_rn(__half x) { return static_cast<int>(nearbyintf(static_cast<float>(x))); }
static inline int __half2int_rz(__half x) { return static_cast<int>(static_cast<float>(x)); }
static inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
static inline __half __short_as_half(short bits) { return __ushort_as_half(static_cast<unsigned short>(bits)); }
static inline unsigned short __half_as_ushort(__half x) { return x.__x; }
static inline short __half_as_short(__half x) { return static_cast<short>(x.__x); }

static inline __half __hadd(__half a, __half b) { return a + b; }
static inline __half __hsub(__half a, __half b) { return a - b; }
static inline __half __hmul(__half a, __half b) { return a * b; }
static inline __half __hdiv(__half a, __half b) { return a / b; }
static inline __half __hneg(__half a) { return -a; }
static inline __half __habs(__half a) { return __ushort_as_half(a.__x & 0x7fff); }
static inline __half __hfma(__half a, __half b, __half c) { return __half(fmaf(a, b, c)); }
static inline __half __hmax(__half a, __half b) { return __half(fmaxf(a, b)); }
static inline __half __hmin(__half a, __half b) { return __half(fminf(a, b)); }
static inline bool __heq(__half a, __half b) { return a == b; }
static inline bool __hne(__half a, __half b) { return a != b; }
static inline bool __hlt(__half a, __half b) { return a < b; }
static inline bool __hle(__half a, __half b) { return a <= b; }
static inline bool __hgt(__half a, __half b) { return a > b; }
static inline bool __hge(__half a, __half b) { return a >= b; }
static inline bool __hisnan(__half a) { return std::isnan(static_cast<float>(a)); }
static inline bool __hisinf(__half a) { return std::isinf(static_cast<float>(a)); }
static inline __half hexp(__half a) { return __half(expf(a)); }
static inline __half hexp2(__half a) { return __half(exp2f(a)); }
static inline __half hlog(__half a) { return __half(logf(a)); }
static inline __half hsqrt(__half a) { return __half(sqrtf(a)); }
static inline __half hrsqrt(__half a) { return __half(1.0f / sqrtf(a)); }
static inline __half hrcp(__half a) { return __half(1.0f / static_cast<float>(a)); }

static inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
static inline __half2 __half2half2(__half a) { return {a, a}; }
static inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
static inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
static inline __half __low2half(__half2 a) { return a.x; }
static inline __half __high2half(__half2 a) { return a.y; }
static inline float __low2float(__half2 a) { return static_cast<float>(a.x); }
static inline float __high2float(__half2 a) { return static_cast<float>(a.y); }
static inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
static inline __half2 __hsub2(__half2 a, __half2 b) { return {a.x - b.x, a.y - b.y}; }
static inline __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

#include <hip/hip_vector_types.h>
static inline float2 __half22float2(__half2 a) { return {__low2float(a), __high2float(a)}; }
static inline __half2 __float22half2_rn(float2 a) { return __floats2half2_rn(a.x, a.y); }
#endif
