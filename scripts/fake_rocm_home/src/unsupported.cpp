// The remaining exports of the real library, so that any library linked against it loads. Each
// answers "not supported". The C calling convention allows a function without parameters to be
// called with any.
#include <fake_rocm/narrow_float.h>
#include <hip/hip_runtime_api.h>

#include "state.h"

using fake_rocm::report;

extern "C" {

#define FAKE_ROCM_UNSUPPORTED(name) \
    hipError_t name() { return report(hipErrorNotSupported); }
#include "unsupported.inc"
#undef FAKE_ROCM_UNSUPPORTED

// Hints and switches are ignored, which is no reason to fail.
#define FAKE_ROCM_ACCEPTED(name) \
    hipError_t name() { return hipSuccess; }
FAKE_ROCM_ACCEPTED(hipCtxSynchronize)
FAKE_ROCM_ACCEPTED(hipDeviceSetCacheConfig)
FAKE_ROCM_ACCEPTED(hipDeviceSetSharedMemConfig)
FAKE_ROCM_ACCEPTED(hipFuncSetSharedMemConfig)
FAKE_ROCM_ACCEPTED(hipMemAdvise)
FAKE_ROCM_ACCEPTED(hipMemPrefetchAsync)
FAKE_ROCM_ACCEPTED(hipProfilerStart)
FAKE_ROCM_ACCEPTED(hipProfilerStop)
#undef FAKE_ROCM_ACCEPTED

// These functions do not return an error code.
const char* hipApiName(uint32_t) { return "unknown"; }
const char* hipGetCmdName(unsigned int) { return "unknown"; }
const char* hipKernelNameRef(const hipFunction_t) { return ""; }
const char* hipKernelNameRefByPtr(const void*, hipStream_t) { return ""; }
int hipGetStreamDeviceId(hipStream_t) { return fake_rocm::current_device(); }
const char* hiprtcGetErrorString(int) { return "hiprtc is not supported by fake_rocm_home"; }
void __hipGetPCH(const char** pch, unsigned int* size) {
    *pch = nullptr;
    *size = 0;
}
const char* amd_dbgapi_get_build_name() { return "fake_rocm_home"; }
const char* amd_dbgapi_get_git_hash() { return "fake"; }
size_t amd_dbgapi_get_build_id() { return 0; }

// Some compilers convert half precision by calling these.
unsigned short __gnu_f2h_ieee(float value) { return fake_rocm::half_bits(value); }
float __gnu_h2f_ieee(unsigned short value) { return fake_rocm::float_of_half(value); }

}  // extern "C"

// These functions have C++ names.
struct __hip_surface;
struct hipResourceDesc;
hipError_t hipCreateSurfaceObject(__hip_surface**, const hipResourceDesc*) { return report(hipErrorNotSupported); }
hipError_t hipDestroySurfaceObject(__hip_surface*) { return report(hipErrorNotSupported); }
