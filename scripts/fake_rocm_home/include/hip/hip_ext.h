// Kept for code that includes it by name; all of it is in hip_runtime.h.
#pragma once

#include <hip/hip_runtime.h>
