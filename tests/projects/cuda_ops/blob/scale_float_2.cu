#include "ops.cuh"

template <>
int scale<float, 2>(float* data, int n, cudaStream_t stream) {
    return launch_scale<float, 2>(data, n, stream);
}
