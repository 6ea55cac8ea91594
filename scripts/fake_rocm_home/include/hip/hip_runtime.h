// Everything that a HIP source file expects: the runtime API, device functions, kernel launches.
#pragma once
#pragma GCC system_header

#include <hip/hip_common.h>
#include <hip/hip_runtime_api.h>

#ifdef __cplusplus
#include <fake_rocm/atomics.h>
#include <fake_rocm/builtins.h>
#include <fake_rocm/kernel_abi.h>
#include <fake_rocm/launch.h>
#include <fake_rocm/math.h>
#include <fake_rocm/tu.h>
#include <hip/hip_vector_types.h>
#include <time.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>

static inline long long clock64() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}
static inline long long wall_clock64() { return clock64(); }
#endif
