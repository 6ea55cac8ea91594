// The little of HIP that the project uses. HIP's own header has 120,000 lines, and each compile
// reads it once for the host and once for each arch. The include shows that the compiler still
// finds ROCm's headers.
#pragma once

#include <hip/amd_detail/host_defines.h>

using size_t = decltype(sizeof 0);
using hipStream_t = struct ihipStream_t*;
enum hipError_t { hipSuccess = 0 };

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

struct LightIndex {
    unsigned x;
};
#define threadIdx (LightIndex{__builtin_amdgcn_workitem_id_x()})
#define blockIdx (LightIndex{__builtin_amdgcn_workgroup_id_x()})
#define blockDim (LightIndex{64})

extern "C" {
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, hipStream_t stream = nullptr);
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream);
hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** args, size_t shared, hipStream_t stream);
hipError_t hipGetLastError();
hipError_t hipGetDeviceCount(int* count);
}
