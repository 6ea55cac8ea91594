// hip_bfloat16, the older of the two bfloat16 types.
#pragma once
#pragma GCC system_header

#ifdef __cplusplus
#include <fake_rocm/narrow_float.h>
#include <stdint.h>

struct hip_bfloat16 {
    uint16_t data;

    hip_bfloat16() = default;
    explicit hip_bfloat16(float value) : data(fake_rocm::bfloat16_bits(value)) {}
    static hip_bfloat16 round_to_bfloat16(float value) { return hip_bfloat16(value); }
    operator float() const { return fake_rocm::float_of_bfloat16(data); }
};
FAKE_ROCM_NARROW_OPERATORS(hip_bfloat16)
#else
#include <stdint.h>
typedef struct {
    uint16_t data;
} hip_bfloat16;
#endif
