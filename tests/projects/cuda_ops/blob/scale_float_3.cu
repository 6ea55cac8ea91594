#include "ops.cuh"

template <>
int scale<float, 3>(float* data, int n, cudaStream_t stream) {
    return launch_scale<float, 3>(data, n, stream);
}
