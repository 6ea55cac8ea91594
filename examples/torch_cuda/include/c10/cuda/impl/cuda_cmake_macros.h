// Stands in for a header that torch generates when it is built, and that wheels of torch without
// CUDA lack.
#pragma once

#define C10_CUDA_BUILD_SHARED_LIBS
