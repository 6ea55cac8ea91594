// Declares what the sources of this library share. The kernels of `kernels.cu` are registered late.
#pragma once
#include <cuda_runtime.h>

constexpr int k_threads = 32;

cudaError_t launch_double(float* x);
cudaError_t launch_triple(double* x);
cudaError_t launch_look_up(float* x);
cudaError_t fill_table(const float (&values)[4]);
// Asks for 64 KB of dynamic shared memory for the kernel of `launch_reversed`.
cudaError_t allow_reversed();
cudaError_t launch_reversed(float* x);
