#include "shift.cuh"
template void shift<2>(float*, int, float, cudaStream_t);
