#include "shift.cuh"
template void shift<3>(float*, int, float, cudaStream_t);
