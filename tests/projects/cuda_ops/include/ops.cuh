// One function per variant, defined in a generated file each; the kernel is in this header.
#pragma once

#include <cuda_runtime.h>

template <typename T, int Factor>
int scale(T* data, int n, cudaStream_t stream);

template <typename T, int Factor>
__global__ void scale_kernel(T* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= static_cast<T>(Factor);
}

// Initialized once per kernel, as real launchers set a kernel's attributes. Such a static is
// STB_GNU_UNIQUE by default.
template <typename T, int Factor>
inline int& prepared() {
    static int s_status = -1;
    return s_status;
}

template <typename T, int Factor>
int launch_scale(T* data, int n, cudaStream_t stream) {
    int& status = prepared<T, Factor>();
    if (status != 0) {
        status = cudaFuncSetAttribute(scale_kernel<T, Factor>, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024);
        if (status != 0) return status;
    }
    scale_kernel<T, Factor><<<(n + 63) / 64, 64, 0, stream>>>(data, n);
    return static_cast<int>(cudaGetLastError());
}
