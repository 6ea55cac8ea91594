#include "../fill.hpp"

template <int Value>
__global__ void fill(int* out, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (out && i < count) out[i] = Value;
}

template <>
int run_fill<Traits<7>>(int* out, int count) {
    fill<Traits<7>::value><<<(count + 127) / 128, 128>>>(out, count);
    const cudaError_t error = cudaGetLastError();
    return static_cast<int>(error != cudaSuccess ? error : cudaDeviceSynchronize());
}
