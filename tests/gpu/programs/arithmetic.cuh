// Declares the functions that compute. Nothing is included that they do not need, because many
// processes compile them.
#pragma once
#include <cuda_runtime.h>

// x[i] *= factor
void scale(float* x, int n, float factor, cudaStream_t stream);

// x[i] += by. One file for each WHICH, so that a program has several that it never called before.
template <int WHICH>
void shift(float* x, int n, float by, cudaStream_t stream);
