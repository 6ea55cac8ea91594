#include "shift.cuh"
template void shift<1>(float*, int, float, cudaStream_t);
