#include "late.cuh"

namespace {

constexpr int k_shared = 1 << 16;

__constant__ float table[4];

template <class T, int N>
__global__ void scale(T* x) {
    x[threadIdx.x] *= N;
}

__global__ void look_up(float* x) { x[threadIdx.x] = table[threadIdx.x % 4]; }

// Reverses the numbers through the last floats of 64 KB of shared memory, which a launch has only
// if the attribute was set.
template <class T>
__global__ void reversed(T* x) {
    extern __shared__ T shared[];
    T* const last = shared + k_shared / sizeof(T) - k_threads;
    last[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = last[k_threads - 1 - threadIdx.x];
}

}  // namespace

cudaError_t launch_double(float* x) {
    scale<float, 2><<<1, k_threads>>>(x);
    return cudaGetLastError();
}

cudaError_t launch_triple(double* x) {
    scale<double, 3><<<1, k_threads>>>(x);
    return cudaGetLastError();
}

cudaError_t launch_look_up(float* x) {
    look_up<<<1, k_threads>>>(x);
    return cudaGetLastError();
}

cudaError_t fill_table(const float (&values)[4]) { return cudaMemcpyToSymbol(table, values, sizeof values); }

cudaError_t allow_reversed() {
    return cudaFuncSetAttribute(reversed<float>, cudaFuncAttributeMaxDynamicSharedMemorySize, k_shared);
}

cudaError_t launch_reversed(float* x) {
    reversed<<<1, k_threads, k_shared>>>(x);
    return cudaGetLastError();
}
