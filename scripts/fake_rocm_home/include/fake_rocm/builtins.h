// Device functions that need the block or the wave: barriers, shuffles, votes.
#pragma once
#pragma GCC system_header

#include <fake_rocm/kernel_abi.h>
#include <string.h>

// warpSize is a constant if hipcc knows it from the requested archs, as code expects that sizes
// arrays with it.
#ifdef FAKE_ROCM_WAVE_SIZE
static constexpr int warpSize = FAKE_ROCM_WAVE_SIZE;
#else
extern "C" const int warpSize __asm__("fake_rocm_warp_size");
#endif

static inline void __syncthreads() { fake_rocm_block_barrier(0); }
static inline int __syncthreads_count(int predicate) { return fake_rocm_block_barrier(predicate); }
static inline int __syncthreads_or(int predicate) { return fake_rocm_block_barrier(predicate) != 0; }
static inline int __syncthreads_and(int predicate) { return fake_rocm_block_barrier(predicate == 0) == 0; }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline unsigned int __lane_id() { return fake_rocm_lane(); }

namespace fake_rocm {

// Returns the value of lane `source`: 0 if that lane did not take part (as on the hardware), and
// the own value if the source lies outside.
template <class T>
T wave_read(T value, int source, bool inside) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "shuffles move at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    const uint64_t* values = nullptr;
    const uint64_t active = fake_rocm_wave_share(bits, &values);
    if (!inside) return value;
    const uint64_t found = (active >> source & 1) != 0 ? values[source] : 0;
    memcpy(&value, &found, sizeof(T));
    return value;
}

struct Segment {
    int m_lane, m_first, m_width;
    explicit Segment(int width)
        : m_lane(static_cast<int>(fake_rocm_lane())), m_first(m_lane & ~(width - 1)), m_width(width) {}
    bool holds(int lane) const { return lane >= m_first && lane < m_first + m_width; }
};

}  // namespace fake_rocm

template <class T>
T __shfl(T value, int source, int width = warpSize) {
    const fake_rocm::Segment s(width);
    return fake_rocm::wave_read(value, s.m_first + (source & (width - 1)), true);
}
template <class T>
T __shfl_up(T value, unsigned int delta, int width = warpSize) {
    const fake_rocm::Segment s(width);
    const int source = s.m_lane - static_cast<int>(delta);
    return fake_rocm::wave_read(value, source, s.holds(source));
}
template <class T>
T __shfl_down(T value, unsigned int delta, int width = warpSize) {
    const fake_rocm::Segment s(width);
    const int source = s.m_lane + static_cast<int>(delta);
    return fake_rocm::wave_read(value, source, s.holds(source));
}
template <class T>
T __shfl_xor(T value, int mask, int width = warpSize) {
    const fake_rocm::Segment s(width);
    const int source = s.m_lane ^ mask;
    return fake_rocm::wave_read(value, source, source < s.m_first + s.m_width);
}
template <class T>
T __shfl_sync(unsigned long long, T value, int source, int width = warpSize) {
    return __shfl(value, source, width);
}
template <class T>
T __shfl_up_sync(unsigned long long, T value, unsigned int delta, int width = warpSize) {
    return __shfl_up(value, delta, width);
}
template <class T>
T __shfl_down_sync(unsigned long long, T value, unsigned int delta, int width = warpSize) {
    return __shfl_down(value, delta, width);
}
template <class T>
T __shfl_xor_sync(unsigned long long, T value, int mask, int width = warpSize) {
    return __shfl_xor(value, mask, width);
}

static inline unsigned long long __ballot(int predicate) {
    const uint64_t* values = nullptr;
    const uint64_t active = fake_rocm_wave_share(predicate != 0, &values);
    unsigned long long result = 0;
    for (int lane = 0; lane < 64; ++lane)
        if ((active >> lane & 1) != 0 && values[lane] != 0) result |= 1ULL << lane;
    return result;
}
static inline unsigned long long __activemask() {
    const uint64_t* values = nullptr;
    return fake_rocm_wave_share(0, &values);
}
static inline int __any(int predicate) { return __ballot(predicate) != 0; }
static inline int __all(int predicate) { return __ballot(predicate == 0) == 0; }
static inline void __syncwarp(unsigned long long = ~0ULL) { (void)__activemask(); }

#if !defined(__clang__)
// clang knows these names and refuses them for the host.
static inline void __builtin_amdgcn_s_barrier() { __syncthreads(); }
static inline void __builtin_amdgcn_sched_barrier(int) {}
static inline void __builtin_amdgcn_s_waitcnt(int) {}
static inline int __builtin_amdgcn_readfirstlane(int value) {
    const uint64_t* values = nullptr;
    const uint64_t active = fake_rocm_wave_share(static_cast<unsigned int>(value), &values);
    return static_cast<int>(values[__builtin_ctzll(active)]);
}
#endif
