// The HIP version that this stand-in follows.
#pragma once

#define HIP_VERSION_MAJOR 6
#define HIP_VERSION_MINOR 0
#define HIP_VERSION_PATCH 0
#define HIP_VERSION_GITHASH "fake"
#define HIP_VERSION_BUILD_ID 0
#define HIP_VERSION_BUILD_NAME "fake_rocm_home"
#define HIP_VERSION (HIP_VERSION_MAJOR * 10000000 + HIP_VERSION_MINOR * 100000 + HIP_VERSION_PATCH)
