// float4 and similar types: HIP_vector_type<T, N> with elementwise arithmetic, and make_<type>
// functions.
#pragma once
#pragma GCC system_header

#ifdef __cplusplus
#include <stddef.h>

// Vectors of 2 and 4 elements are aligned to their size, as the native vectors of the real type
// are; those of 1 and 3 are not.
#define FAKE_ROCM_VECTOR(N, ALIGN, FIELDS, PARAMS, INIT, BROADCAST)               \
    template <class T>                                                            \
    struct alignas(ALIGN) HIP_vector_type<T, N> {                                 \
        using value_type = T;                                                     \
        union {                                                                   \
            struct {                                                              \
                T FIELDS;                                                         \
            };                                                                    \
            T data[N];                                                            \
        };                                                                        \
        HIP_vector_type() = default;                                              \
        constexpr HIP_vector_type PARAMS : INIT {}                                \
        BROADCAST                                                                 \
        constexpr T& operator[](size_t index) { return data[index]; }             \
        constexpr const T& operator[](size_t index) const { return data[index]; } \
    };

template <class T, unsigned N>
struct HIP_vector_type;

#define FAKE_ROCM_COMMA ,
FAKE_ROCM_VECTOR(1, sizeof(T), x, (T x_), x(x_), )
FAKE_ROCM_VECTOR(2, 2 * sizeof(T), x FAKE_ROCM_COMMA y, (T x_, T y_), x(x_) FAKE_ROCM_COMMA y(y_),
                 constexpr HIP_vector_type(T all) : HIP_vector_type(all, all){})
FAKE_ROCM_VECTOR(3, sizeof(T), x FAKE_ROCM_COMMA y FAKE_ROCM_COMMA z, (T x_, T y_, T z_),
                 x(x_) FAKE_ROCM_COMMA y(y_) FAKE_ROCM_COMMA z(z_),
                 constexpr HIP_vector_type(T all) : HIP_vector_type(all, all, all){})
FAKE_ROCM_VECTOR(4, 4 * sizeof(T), x FAKE_ROCM_COMMA y FAKE_ROCM_COMMA z FAKE_ROCM_COMMA w, (T x_, T y_, T z_, T w_),
                 x(x_) FAKE_ROCM_COMMA y(y_) FAKE_ROCM_COMMA z(z_) FAKE_ROCM_COMMA w(w_),
                 constexpr HIP_vector_type(T all) : HIP_vector_type(all, all, all, all){})
#undef FAKE_ROCM_COMMA
#undef FAKE_ROCM_VECTOR

#define FAKE_ROCM_OPERATOR(OP)                                                                                  \
    template <class T, unsigned N>                                                                              \
    constexpr HIP_vector_type<T, N>& operator OP##=(HIP_vector_type<T, N>& a, const HIP_vector_type<T, N>& b) { \
        for (unsigned i = 0; i < N; ++i) a.data[i] = static_cast<T>(a.data[i] OP b.data[i]);                    \
        return a;                                                                                               \
    }                                                                                                           \
    template <class T, unsigned N>                                                                              \
    constexpr HIP_vector_type<T, N>& operator OP##=(HIP_vector_type<T, N>& a, T b) {                            \
        for (unsigned i = 0; i < N; ++i) a.data[i] = static_cast<T>(a.data[i] OP b);                            \
        return a;                                                                                               \
    }                                                                                                           \
    template <class T, unsigned N>                                                                              \
    constexpr HIP_vector_type<T, N> operator OP(HIP_vector_type<T, N> a, const HIP_vector_type<T, N>& b) {      \
        return a OP## = b;                                                                                      \
    }                                                                                                           \
    template <class T, unsigned N>                                                                              \
    constexpr HIP_vector_type<T, N> operator OP(HIP_vector_type<T, N> a, T b) {                                 \
        return a OP## = b;                                                                                      \
    }
FAKE_ROCM_OPERATOR(+)
FAKE_ROCM_OPERATOR(-)
FAKE_ROCM_OPERATOR(*)
FAKE_ROCM_OPERATOR(/)
#undef FAKE_ROCM_OPERATOR

template <class T, unsigned N>
constexpr HIP_vector_type<T, N> operator*(T a, HIP_vector_type<T, N> b) {
    return b *= a;
}
template <class T, unsigned N>
constexpr bool operator==(const HIP_vector_type<T, N>& a, const HIP_vector_type<T, N>& b) {
    for (unsigned i = 0; i < N; ++i)
        if (a.data[i] != b.data[i]) return false;
    return true;
}
template <class T, unsigned N>
constexpr bool operator!=(const HIP_vector_type<T, N>& a, const HIP_vector_type<T, N>& b) {
    return !(a == b);
}

#define FAKE_ROCM_NAMES(NAME, T)                                                               \
    using NAME##1 = HIP_vector_type<T, 1>;                                                     \
    using NAME##2 = HIP_vector_type<T, 2>;                                                     \
    using NAME##3 = HIP_vector_type<T, 3>;                                                     \
    using NAME##4 = HIP_vector_type<T, 4>;                                                     \
    static inline constexpr NAME##1 make_##NAME##1(T x) { return NAME##1(x); }                 \
    static inline constexpr NAME##2 make_##NAME##2(T x, T y) { return NAME##2(x, y); }         \
    static inline constexpr NAME##3 make_##NAME##3(T x, T y, T z) { return NAME##3(x, y, z); } \
    static inline constexpr NAME##4 make_##NAME##4(T x, T y, T z, T w) { return NAME##4(x, y, z, w); }
FAKE_ROCM_NAMES(char, char)
FAKE_ROCM_NAMES(uchar, unsigned char)
FAKE_ROCM_NAMES(short, short)
FAKE_ROCM_NAMES(ushort, unsigned short)
FAKE_ROCM_NAMES(int, int)
FAKE_ROCM_NAMES(uint, unsigned int)
FAKE_ROCM_NAMES(long, long)
FAKE_ROCM_NAMES(ulong, unsigned long)
FAKE_ROCM_NAMES(longlong, long long)
FAKE_ROCM_NAMES(ulonglong, unsigned long long)
FAKE_ROCM_NAMES(float, float)
FAKE_ROCM_NAMES(double, double)
#undef FAKE_ROCM_NAMES
#endif
