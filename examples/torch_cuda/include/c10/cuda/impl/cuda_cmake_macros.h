// Stands in for a header that torch's build generates, and that the wheels without CUDA lack: how libc10_cuda was built.
#pragma once

#define C10_CUDA_BUILD_SHARED_LIBS
