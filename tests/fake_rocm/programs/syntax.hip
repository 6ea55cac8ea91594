// Tests the syntax that is not C++: <<<>>> and extern __shared__.
#include <iostream>

#include "check.h"

template <class T>
__global__ void fill(T* out, T value) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void reverse(int* data) {
    extern __shared__ int stage[];
    stage[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = stage[blockDim.x - 1 - threadIdx.x];
}

__global__ void count(int* data) { atomicAdd(data, 1); }

struct Words {};
std::ostream& operator<<(std::ostream& out, const Words&) {
    return out << "<<<not a launch>>>" << '<' << 1'000 << '\n';
}

template <class Kernel, class... Args>
void launch(Kernel kernel, dim3 grid, Args... args) {
    kernel<<<grid, dim3(4, (2 + 2) / 2), 0, nullptr>>>(args...);
}

int main() {
    int* data = device_array<int>(64);
    fill<int><<<4, 16>>>(data, 7);
    CHECK(read_back(data + 63) == 7);
    fill<int><<<1, 1>>>(data, 9);
    CHECK(read_back(data) == 9);
    reverse<<<dim3(1), 64, 64 * sizeof(int)>>>(data);
    CHECK(read_back(data + 63) == 9);
    // clang-format off
    fill<int> <<< 64 >> 2, 1 << 1 >>> (data, 0);
    // clang-format on
    launch(count, dim3(2, 2), data);
    CHECK(read_back(data) == 32);
    count<<<1, 1>>>(0 == 1 ? data : data + 1);
    CHECK(read_back(data + 1) == 1);
    CHECK_HIP(hipGetLastError());
    std::cout << Words();
    return finish();
}
