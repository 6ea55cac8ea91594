// This header exists for code that includes it by name; its contents are in hip_runtime_api.h.
#pragma once

#include <hip/hip_runtime_api.h>
