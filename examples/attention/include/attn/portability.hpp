// The only header that knows which GPU runtime the sources are compiled for: HIP (hipcc) or CUDA
// (nvcc). All other sources use gpu_*, ATTN_LAUNCH and the storage types below.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__NVCC__)
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define ATTN_GPU(name) cuda##name
#define ATTN_LAUNCH(kernel, grid, block, stream, ...) kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#else
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#define ATTN_GPU(name) hip##name
#define ATTN_LAUNCH(kernel, grid, block, stream, ...) \
    hipLaunchKernelGGL(kernel, (grid), (block), 0, (stream), __VA_ARGS__)
#endif

// Accumulators live in registers only if the loops that index them are unrolled. GCC has another
// pragma, but it compiles these kernels only for the CPU, where nothing is lost.
#if defined(__clang__) || defined(__NVCC__)
#define ATTN_UNROLL _Pragma("unroll")
#else
#define ATTN_UNROLL
#endif

using gpu_error_t = ATTN_GPU(Error_t);
using gpu_stream_t = ATTN_GPU(Stream_t);

constexpr gpu_error_t k_gpu_success = ATTN_GPU(Success);

inline const char* gpu_error_string(gpu_error_t error) { return ATTN_GPU(GetErrorString)(error); }
inline gpu_error_t gpu_last_error() { return ATTN_GPU(GetLastError)(); }
inline gpu_error_t gpu_malloc(void** pointer, std::size_t bytes) { return ATTN_GPU(Malloc)(pointer, bytes); }
inline gpu_error_t gpu_free(void* pointer) { return ATTN_GPU(Free)(pointer); }
inline gpu_error_t gpu_device_count(int* count) { return ATTN_GPU(GetDeviceCount)(count); }
inline gpu_error_t gpu_device_synchronize() { return ATTN_GPU(DeviceSynchronize)(); }
inline gpu_error_t gpu_stream_synchronize(gpu_stream_t stream) { return ATTN_GPU(StreamSynchronize)(stream); }
inline gpu_error_t gpu_copy_to_device(void* device, const void* host, std::size_t bytes) {
    return ATTN_GPU(Memcpy)(device, host, bytes, ATTN_GPU(MemcpyHostToDevice));
}
inline gpu_error_t gpu_copy_to_host(void* host, const void* device, std::size_t bytes) {
    return ATTN_GPU(Memcpy)(host, device, bytes, ATTN_GPU(MemcpyDeviceToHost));
}

namespace attn {

// bfloat16 as bits: older HIP releases have no bfloat16 header, and the newer ones disagree with
// CUDA's on names.
struct BFloat16 {
    std::uint16_t bits;
};

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(BFloat16 value) {
    union {
        std::uint32_t bits;
        float number;
    } pun;
    pun.bits = static_cast<std::uint32_t>(value.bits) << 16;
    return pun.number;
}

template <typename T>
struct FromFloat;

template <>
struct FromFloat<float> {
    __device__ static float convert(float value) { return value; }
};

template <>
struct FromFloat<__half> {
    __device__ static __half convert(float value) { return __float2half(value); }
};

template <>
struct FromFloat<BFloat16> {
    __device__ static BFloat16 convert(float value) {
        union {
            float number;
            std::uint32_t bits;
        } pun;
        pun.number = value;
        if (value != value) {
            return BFloat16{0x7fc0};  // rounding could turn a NaN's payload into infinity
        }
        const std::uint32_t round_to_even = 0x7fffu + ((pun.bits >> 16) & 1u);
        return BFloat16{static_cast<std::uint16_t>((pun.bits + round_to_even) >> 16)};
    }
};

}  // namespace attn
