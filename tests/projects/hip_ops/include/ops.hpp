// One function per variant, defined in a generated file each; the kernel is in this header.
#pragma once

#ifdef LIGHT_HIP
#include "light_hip.hpp"
#else
#include <hip/hip_runtime.h>
#endif

template <typename T, int Factor>
int scale(T* data, int n, hipStream_t stream);

template <typename T, int Factor>
__global__ void scale_kernel(T* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= static_cast<T>(Factor);
}

template <typename T, int Factor>
int launch_scale(T* data, int n, hipStream_t stream) {
    scale_kernel<T, Factor><<<(n + 63) / 64, 64, 0, stream>>>(data, n);
    return static_cast<int>(hipGetLastError());
}
