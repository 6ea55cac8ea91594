#include "shift.cuh"
template void shift<4>(float*, int, float, cudaStream_t);
