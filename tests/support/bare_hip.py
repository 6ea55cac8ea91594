"""Provides a header that declares what a small HIP source needs. ROCm's own headers cost each
compile a second; a test whose subject they are not has a tenth of that with this one."""

# With these flags, clang does not read its own header for HIP, nor the device libraries.
FLAGS = "-nogpuinc -nogpulib"
HEADER = """
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
#define __noinline__ __attribute__((noinline))
#define threadIdx (Index{__builtin_amdgcn_workitem_id_x()})
#define HIP_SYMBOL(name) name
using size_t = decltype(sizeof 0);
using hipError_t = int;
using hipStream_t = struct ihipStream_t*;
struct Index { unsigned x; };
struct dim3 {
    unsigned x, y, z;
    __host__ __device__ dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
extern "C" hipError_t __hipPushCallConfiguration(dim3, dim3, size_t = 0, hipStream_t = nullptr);
extern "C" hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t);
extern "C" hipError_t hipMemcpyToSymbol(const void*, const void*, size_t, size_t = 0, int = 1);
extern "C" hipError_t hipGetLastError();
"""
