// hipcc includes this before every HIP translation unit. It has the CUDA-like keywords, and the
// record of the requested archs, which stays visible in the object and in everything that it is
// linked into (readelf -p .fake_rocm.archs).
#pragma once
#pragma GCC system_header

#ifdef __cplusplus

#ifdef FAKE_ROCM_IN_PASSES  // hipcc finds these marks and removes them (device_text.py)
#define __global__ __attribute__((__fake_rocm_kernel__))
#define __device__ __attribute__((__fake_rocm_device__))
#define __constant__ __attribute__((__fake_rocm_device__))
#define __managed__ __attribute__((__fake_rocm_managed__))
#else
#define __global__
#define __device__
#define __constant__
#define __managed__
#endif
#define __host__
// Blocks run one after another, so one copy per kernel is shared by a block's threads. hipcc gives
// `extern __shared__` its storage (see rewrite.py), because C++ does not allow `extern static`.
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
// __noinline__ is not defined: the standard library uses it as an attribute's name.

#ifndef FAKE_ROCM_ARCHS
#define FAKE_ROCM_ARCHS ""  // not compiled by hipcc: runs on every device
#endif

#if defined(__has_attribute)
#if __has_attribute(retain)
#define FAKE_ROCM_RETAIN retain,  // protects it from --gc-sections
#endif
#endif
#ifndef FAKE_ROCM_RETAIN
#define FAKE_ROCM_RETAIN
#endif

namespace fake_rocm {
// The linkage is internal: each object has its own copy, and none defines a symbol that could
// clash.
__attribute__((FAKE_ROCM_RETAIN section(".fake_rocm.archs"), used)) static const char k_tu_archs[] = FAKE_ROCM_ARCHS;
}  // namespace fake_rocm

#endif
