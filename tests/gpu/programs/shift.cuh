#pragma once
#include "arithmetic.cuh"

template <int WHICH>
__global__ void shift_kernel(float* x, int n, float by) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}

template <int WHICH>
void shift(float* x, int n, float by, cudaStream_t stream) {
    shift_kernel<WHICH><<<(n + 255) / 256, 256, 0, stream>>>(x, n, by);
}
