// These launches fail, either at the launch or when the kernel runs.
#include "launches.cuh"

namespace {

constexpr int k_local = 64 << 10;  // bytes of local memory per thread, which the device must have for all its threads
constexpr std::size_t k_left = std::size_t(1) << 30;  // bytes that stay free for everything else

__global__ void trap() { asm("trap;"); }

__global__ void idle() {}

__global__ void __launch_bounds__(64) bounded(float* x) { x[threadIdx.x] = 1; }

__global__ void greedy(float* x, int n) {
    volatile float own[k_local / sizeof(float)];
    for (int i = 0; i < n; ++i) own[i] = i;
    *x = own[n - 1];
}

// Returns the launch's error, and then what the next CUDA calls of a program return.
std::string after(cudaError_t error) {
    std::string said = line("launch", error) + line("finished", cudaDeviceSynchronize()) +
                       line("last", cudaGetLastError()) + line("last again", cudaGetLastError());
    void* memory = nullptr;
    said += line("memory", cudaMalloc(&memory, 1 << 10));
    idle<<<1, 1>>>();
    return said + line("next launch", cudaGetLastError()) + line("finished", cudaDeviceSynchronize());
}

}  // namespace

std::string launch_that_traps() {
    trap<<<1, 1>>>();
    return after(cudaGetLastError());
}

std::string launch_out_of_memory() {
    std::size_t unused = 0, total = 0;
    std::string said = line("asked", cudaMemGetInfo(&unused, &total));
    void* rest = nullptr;
    said += line("rest", unused > k_left ? cudaMalloc(&rest, unused - k_left) : cudaSuccess);
    float* x = nullptr;
    said += line("memory", cudaMalloc(&x, sizeof(float)));
    greedy<<<1, 1>>>(x, k_local / int(sizeof(float)));
    return said + after(cudaGetLastError());
}

std::string launch_of_too_many_threads() {
    idle<<<1, 4096>>>();
    return after(cudaGetLastError());
}

std::string launch_past_its_bounds() {
    bounded<<<1, 1024>>>(nullptr);
    return after(cudaGetLastError());
}
