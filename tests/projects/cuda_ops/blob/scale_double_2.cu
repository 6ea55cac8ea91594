#include "ops.cuh"

template <>
int scale<double, 2>(double* data, int n, cudaStream_t stream) {
    return launch_scale<double, 2>(data, n, stream);
}
