// What compiled kernels need from this home's libamdhip64 to run on the CPU.
#pragma once
#pragma GCC system_header

#include <hip/hip_runtime_api.h>

// A thread of a block always sees the same values, so they are const here although the runtime
// writes them.
extern "C" {
extern const uint3 threadIdx __asm__("fake_rocm_thread_idx");
extern const uint3 blockIdx __asm__("fake_rocm_block_idx");
extern const dim3 blockDim __asm__("fake_rocm_block_dim");
extern const dim3 gridDim __asm__("fake_rocm_grid_dim");

struct fake_rocm_kernel {
    const void* address;
    const char* source_text;  // the kernel's name in the launch, if there is no better one
    const char* archs;        // comma-separated; empty: any
};

// Waits for the whole block; returns how many of its threads gave a predicate other than 0.
int fake_rocm_block_barrier(int predicate);
// Waits for the running lanes of the wave. Sets *values to the value of each lane (valid until the
// caller's next wave operation), and returns the mask of the lanes that took part.
uint64_t fake_rocm_wave_share(uint64_t value, const uint64_t** values);
// Returns this thread's place in its wave.
unsigned int fake_rocm_lane(void);

hipError_t fake_rocm_launch(const fake_rocm_kernel* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                            hipStream_t stream, void (*run_thread)(const void*), const void* closure);
}

#define hipThreadIdx_x (threadIdx.x)
#define hipThreadIdx_y (threadIdx.y)
#define hipThreadIdx_z (threadIdx.z)
#define hipBlockIdx_x (blockIdx.x)
#define hipBlockIdx_y (blockIdx.y)
#define hipBlockIdx_z (blockIdx.z)
#define hipBlockDim_x (blockDim.x)
#define hipBlockDim_y (blockDim.y)
#define hipBlockDim_z (blockDim.z)
#define hipGridDim_x (gridDim.x)
#define hipGridDim_y (gridDim.y)
#define hipGridDim_z (gridDim.z)

// The dynamic shared memory of a block is one array of the runtime, whatever name a kernel gives
// it.
#define HIP_DYNAMIC_SHARED(type, name) extern type name[] __asm__("fake_rocm_dynamic_shared");
#define HIP_DYNAMIC_SHARED_ATTRIBUTE
