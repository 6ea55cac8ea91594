// Streams and events: handles are checked, and their work is always done.
#pragma once

#include <hip/hip_runtime_api.h>

namespace fake_rocm {

bool is_stream(hipStream_t stream);
bool is_event(hipEvent_t event);
void record_event(hipEvent_t event);

}  // namespace fake_rocm
