// Tests __half and bfloat16: conversion rounds to nearest even, and agrees with the compiler's own
// _Float16 if it has one.
#include <hip/hip_bf16.h>
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>

#include <cmath>
#include <cstring>

#include "check.h"

unsigned short half_of(float x) { return __half_as_ushort(__float2half(x)); }
unsigned short bfloat_of(float x) { return __bfloat16_as_ushort(__float2bfloat16(x)); }

__global__ void scale(__half* data, float factor) {
    __shared__ __half stage[4];
    stage[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = stage[3 - threadIdx.x] * factor;
}

int main() {
    CHECK(half_of(1.0f) == 0x3c00 && half_of(-2.0f) == 0xc000 && half_of(65504.0f) == 0x7bff);
    CHECK(half_of(1.0f + 1.0f / 2048) == 0x3c00);   // half way: to even, down
    CHECK(half_of(1.0f + 3.0f / 2048) == 0x3c02);   // half way: to even, up
    CHECK(half_of(1.0f + 1.01f / 2048) == 0x3c01);  // above half way
    CHECK(half_of(65519.0f) == 0x7bff && half_of(65520.0f) == 0x7c00 && half_of(INFINITY) == 0x7c00);
    CHECK(half_of(ldexpf(1, -24)) == 1 && half_of(ldexpf(1, -25)) == 0 && half_of(ldexpf(3, -26)) == 1);
    CHECK(half_of(-0.0f) == 0x8000 && std::isnan(__half2float(__float2half(NAN))));
    CHECK(bfloat_of(1.0f) == 0x3f80 && bfloat_of(1.0f + 1.0f / 256) == 0x3f80 &&
          bfloat_of(1.0f + 3.0f / 256) == 0x3f82);
    CHECK(bfloat_of(3.4028235e38f) == 0x7f80 && std::isnan(__bfloat162float(__float2bfloat16(NAN))));
    CHECK(hip_bfloat16(1.0f + 3.0f / 256).data == 0x3f82);

    long different = 0;
    for (unsigned bits = 0; bits < 65536; ++bits) {
        const float x = __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
        if (!std::isnan(x) && half_of(x) != bits) ++different;
#if defined(__FLT16_MAX__)
        _Float16 native;
        const auto narrow = static_cast<unsigned short>(bits);
        memcpy(&native, &narrow, 2);
        if (!std::isnan(x) && static_cast<float>(native) != x) ++different;
        // Every float between this half and the next is nearest to one of them, so this tries
        // values around the middle.
        const float next = __half2float(__ushort_as_half(static_cast<unsigned short>(bits + 1)));
        const float middle = x + (next - x) / 2;
        for (const float y : {nextafterf(middle, x), middle, nextafterf(middle, next)}) {
            if (!std::isfinite(y)) continue;
            native = static_cast<_Float16>(y);
            unsigned short expected;
            memcpy(&expected, &native, 2);
            if (half_of(y) != expected) ++different;
        }
#endif
    }
    CHECK(different == 0);

    __half h = 1.5f;
    h += 1;
    h = h * h - 0.25f;
    CHECK(h == 6.0f && __hfma(h, h, h) == 42 && __high2float(__floats2half2_rn(1, 2)) == 2);
    __hip_bfloat16 b = 3.0f;
    b = b * b / 2;
    CHECK(static_cast<float>(b) == 4.5f && b > 4 && -b < b);

    __half values[4] = {1, 2, 3, 4};
    __half* data = device_array<__half>(4);
    CHECK_HIP(hipMemcpy(data, values, sizeof(values), hipMemcpyHostToDevice));
    hipLaunchKernelGGL(scale, 1, 4, 0, 0, data, 0.5f);
    CHECK(read_back(data) == 2.0f && read_back(data + 3) == 0.5f);
    return finish();
}
