// Tests kernels in the ways that HIP code writes and launches them, with plain C++ syntax only.
#include <vector>

#include "check.h"

__global__ void add(const float* a, const float* b, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

template <class T, int Block>
__global__ void __launch_bounds__(Block) reduce(const T* in, T* out, int n) {
    __shared__ T partial[Block];
    const int i = blockIdx.x * Block + threadIdx.x;
    partial[threadIdx.x] = i < n ? in[i] : T(0);
    __syncthreads();
    for (unsigned int half = Block / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, partial[0]);
}

__global__ void reverse(int* data) {
    HIP_DYNAMIC_SHARED(int, stage)
    stage[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = stage[blockDim.x - 1 - threadIdx.x];
}

// Some threads leave before the barrier; the others must still meet at it.
__global__ void early_exit(int* out, int leaving) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) >= leaving) return;
    atomicAdd(&sum, 1);
    __syncthreads();
    if (threadIdx.x == 0) *out = sum;
}

__global__ void indices(uint3* out) {
    const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
        uint3(blockIdx.x * 100 + threadIdx.x, blockIdx.y * 100 + threadIdx.y, blockIdx.z * 100 + threadIdx.z);
}

__global__ void waves(int* out, unsigned long long* ballots) {
    const int lane = threadIdx.x % warpSize;
    int sum = lane;
    for (int delta = warpSize / 2; delta > 0; delta /= 2) sum += __shfl_xor(sum, delta);
    const int next = __shfl_down(lane, 1);
    const int previous = __shfl_up(lane, 1);
    const int third = __shfl(lane, 3, 8);  // in groups of 8
    out[threadIdx.x] = sum * 1000000 + next * 10000 + previous * 100 + third;
    const unsigned long long odd = __ballot(lane % 2);
    if (lane == 0) ballots[threadIdx.x / warpSize] = odd;
}

__global__ void votes(int* out) {
    const int odd = __syncthreads_count(threadIdx.x % 2);
    const int any = __syncthreads_or(threadIdx.x == 7);
    const int all = __syncthreads_and(threadIdx.x < 7);
    if (threadIdx.x == 0) *out = odd * 100 + any * 10 + all;
}

__global__ void atomics(unsigned int* u, int* i, float* f) {
    atomicAdd(&u[0], 1);
    atomicMax(&u[1], threadIdx.x);
    atomicInc(&u[2], 9);
    atomicCAS(&u[3], 0, threadIdx.x + 1);
    atomicMin(&i[0], -static_cast<int>(threadIdx.x));
    atomicSub(&i[1], 2);
    atomicOr(&i[2], 1 << threadIdx.x % 8);
    atomicAdd(f, 0.5f);
}

__constant__ float table[4];
__global__ void lookup(float* out) { out[threadIdx.x] = table[threadIdx.x]; }

__global__ void nothing() {}

__global__ void stack_alignment(int* out) {
    alignas(16) char local[16];
    // `volatile` keeps the compiler from assuming the alignment.
    const volatile uintptr_t address = reinterpret_cast<uintptr_t>(local);
    if (address % 16 != 0) atomicAdd(out, 1);
}

template <class T>
__device__ T square(T x) {
    return x * x;
}
__global__ void math(float* out) {
    out[0] = rsqrtf(4.0f) + __expf(0.0f) + min(3, 4.0f) + max(1u, 2);
    out[1] = square(exp2f(3.0f)) + __popc(255) + __clz(1) + __ffs(8);
    const float4 v = make_float4(1, 2, 3, 4) * 2.0f + float4(1.0f);
    out[2] = v.x + v.w;
}

int main() {
    const int n = 1000;
    std::vector<float> ones(n, 1.0f);
    float* a = device_array<float>(n);
    float* b = device_array<float>(n);
    CHECK_HIP(hipMemcpy(a, ones.data(), n * sizeof(float), hipMemcpyHostToDevice));
    hipLaunchKernelGGL(add, dim3(8), dim3(128), 0, 0, a, a, b, n);
    CHECK_HIP(hipGetLastError());
    CHECK(read_back(b) == 2.0f && read_back(b + n - 1) == 2.0f);

    CHECK_HIP(hipMemset(b, 0, sizeof(float)));
    hipLaunchKernelGGL((reduce<float, 256>), 4, 256, 0, nullptr, a, b, n);
    hipLaunchKernelGGL(HIP_KERNEL_NAME(reduce<float, 64>), dim3(16), dim3(64), 0, 0, a, b, n);
    CHECK(read_back(b) == 2 * n);

    int* ints = device_array<int>(1024);
    std::vector<int> counting(1024);
    for (int i = 0; i < 1024; ++i) counting[i] = i;
    CHECK_HIP(hipMemcpy(ints, counting.data(), 4096, hipMemcpyHostToDevice));
    hipLaunchKernelGGL(reverse, dim3(1), dim3(1024), 1024 * sizeof(int), 0, ints);
    CHECK(read_back(ints) == 1023 && read_back(ints + 1023) == 0);

    hipLaunchKernelGGL(early_exit, 1, 256, 0, 0, ints, 100);
    CHECK(read_back(ints) == 100);

    uint3* triples = device_array<uint3>(2 * 3 * 4 * 2 * 3 * 4);
    hipLaunchKernelGGL(indices, dim3(2, 3, 4), dim3(4, 3, 2), 0, 0, triples);
    CHECK(read_back(triples + 575) == uint3(103, 202, 301));

    const int wave = FAKE_ROCM_WAVE_SIZE;
    unsigned long long* ballots = device_array<unsigned long long>(2);
    hipLaunchKernelGGL(waves, 1, 2 * wave, 0, 0, ints, ballots);
    const int sum = wave * (wave - 1) / 2;
    CHECK(read_back(ints) == sum * 1000000 + 1 * 10000 + 0 * 100 + 3);
    CHECK(read_back(ints + wave + 9) == sum * 1000000 + 10 * 10000 + 8 * 100 + 11);
    CHECK(read_back(ints + 2 * wave - 1) == sum * 1000000 + (wave - 1) * 10000 + (wave - 2) * 100 + wave - 5);
    CHECK(read_back(ballots + 1) == 0xaaaaaaaaaaaaaaaaULL >> (64 - wave));

    hipLaunchKernelGGL(votes, 1, 8, 0, 0, ints);
    CHECK(read_back(ints) == 4 * 100 + 1 * 10 + 0);

    unsigned int* u = device_array<unsigned int>(4);
    CHECK_HIP(hipMemset(u, 0, 16));
    CHECK_HIP(hipMemset(ints, 0, 16));
    CHECK_HIP(hipMemset(b, 0, 4));
    hipLaunchKernelGGL(atomics, 3, 25, 0, 0, u, ints, b);
    CHECK(read_back(u) == 75 && read_back(u + 1) == 24 && read_back(u + 2) == 75 % 10 && read_back(u + 3) == 1);
    CHECK(read_back(ints) == -24 && read_back(ints + 1) == -150 && read_back(ints + 2) == 255);
    CHECK(read_back(b) == 37.5f);

    const float values[4] = {1, 2, 3, 4};
    CHECK_HIP(hipMemcpyToSymbol(HIP_SYMBOL(table), values, sizeof(values)));
    hipLaunchKernelGGL(lookup, 1, 4, 0, 0, b);
    CHECK(read_back(b + 3) == 4.0f);

    CHECK_HIP(hipMemset(ints, 0, 4));
    hipLaunchKernelGGL(stack_alignment, 2, 64, 0, 0, ints);
    CHECK(read_back(ints) == 0);

    hipLaunchKernelGGL(math, 1, 1, 0, 0, b);
    CHECK(read_back(b) == 0.5f + 1 + 3 + 2 && read_back(b + 1) == 64 + 8 + 31 + 4 && read_back(b + 2) == 12);

    // Literals convert to the parameters' types; the typed hipLaunchKernel takes pointers to
    // arguments.
    hipLaunchKernelGGL(add, 1, 1, 0, 0, nullptr, NULL, 0, 0);
    hipLaunchKernelGGL(nothing, 1, 1, 0, 0);
    int leaving = 5;
    void* arguments[] = {&ints, &leaving};
    CHECK_HIP(hipLaunchKernel(&early_exit, dim3(1), dim3(64), arguments, 0, nullptr));
    CHECK(read_back(ints) == 5);
    CHECK_HIP(hipGetLastError());
    return finish();
}
