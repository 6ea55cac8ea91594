// Hashes by a CPU's own instructions for SHA-256.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && defined(__LP64__)
#include <cpuid.h>
#include <immintrin.h>

#include <atomic>
#endif

namespace lazyck::rt::machine {

#if defined(__x86_64__) && defined(__LP64__)

// Intel's instructions for SHA-256, which AMD's CPUs have too, take a sixth of the time. The state
// is kept as they want it: `abef` and `cdgh`.
__attribute__((target("sha,sse4.1"))) inline void absorb_by_instructions(std::uint32_t (&state)[8],
                                                                         const std::uint32_t (&rounds)[64],
                                                                         const unsigned char* at, std::size_t blocks) {
    const auto load = [](const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); };
    const __m128i swapped = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i cdab = _mm_shuffle_epi32(load(state), 0xb1), efgh = _mm_shuffle_epi32(load(state + 4), 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; blocks > 0; --blocks, at += 64) {
        const __m128i first = abef, second = cdgh;
        __m128i w[4];
#pragma GCC unroll 16
        for (std::size_t i = 0; i < 16; ++i) {
            __m128i& now = w[i % 4];
            const __m128i last = w[(i + 3) % 4];
            if (i < 4) {
                now = _mm_shuffle_epi8(load(at + 16 * i), swapped);
            } else {
                now =
                    _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
                now = _mm_sha256msg2_epu32(now, last);
            }
            const __m128i inputs = _mm_add_epi32(now, load(rounds + 4 * i));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, inputs);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(inputs, 0x0e));
        }
        abef = _mm_add_epi32(abef, first);
        cdgh = _mm_add_epi32(cdgh, second);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

inline bool has_instructions() {
    static std::atomic<int> known{-1};
    int has = known.load(std::memory_order_relaxed);
    if (has < 0) {
        unsigned a = 0, b = 0, c = 0, d = 0;
        has = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0 ? 1 : 0;
        known.store(has, std::memory_order_relaxed);
    }
    return has == 1;
}

#endif

// Takes up `blocks` of 64 bytes, with the constants of the standard's rounds. Returns false if this
// CPU has no instructions for that, or if it is not known to have some.
inline bool absorb_sha256(std::uint32_t (&state)[8], const std::uint32_t (&rounds)[64], const unsigned char* at,
                          std::size_t blocks) {
#if defined(__x86_64__) && defined(__LP64__)
    if (!has_instructions()) return false;
    absorb_by_instructions(state, rounds, at, blocks);
    return true;
#else
    static_cast<void>(state), static_cast<void>(rounds), static_cast<void>(at), static_cast<void>(blocks);
    return false;
#endif
}

}  // namespace lazyck::rt::machine
