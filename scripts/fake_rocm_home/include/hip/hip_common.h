// Platform macros: this home has only the AMD platform.
#pragma once

#if defined(__HIP_PLATFORM_NVIDIA__) || defined(__HIP_PLATFORM_NVCC__)
#error "fake_rocm_home: only the AMD platform is supported (compile with -D__HIP_PLATFORM_AMD__)"
#endif
#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__ 1
#endif
#ifndef __HIP_PLATFORM_HCC__
#define __HIP_PLATFORM_HCC__ 1
#endif
