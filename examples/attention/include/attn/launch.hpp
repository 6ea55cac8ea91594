// Starts a kernel on a stream; turns a failure into an exception.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

#include "attn/portability.hpp"

struct stream_config {
    gpu_stream_t stream = nullptr;
    bool time_kernel = false;  // wait for the kernels and return the milliseconds they took
    int log_level = 0;
};

// This is one AMD wavefront, or two CUDA warps. The kernels use no warp intrinsics, so any size
// would be correct.
constexpr int k_block_threads = 64;

inline void check_gpu(gpu_error_t error, const char* what) {
    if (error != k_gpu_success) {
        throw std::runtime_error(std::string(what) + ": " + gpu_error_string(error));
    }
}

template <typename... Args>
void launch_kernel(const stream_config& config, void (*kernel)(Args...), dim3 grid, Args... args) {
    ATTN_LAUNCH(kernel, grid, dim3(k_block_threads), config.stream, args...);
    check_gpu(gpu_last_error(), "kernel launch failed");
}

// Runs `launch`. Returns the milliseconds that it took if the caller asked for them, else 0, and
// never a negative time, by which the dispatchers say that a variant does not exist.
template <typename Launch>
float time_launch(const stream_config& config, Launch launch) {
    if (!config.time_kernel) {
        launch();
        return 0.0f;
    }
    check_gpu(gpu_stream_synchronize(config.stream), "waiting for earlier work failed");
    const auto start = std::chrono::steady_clock::now();
    launch();
    check_gpu(gpu_stream_synchronize(config.stream), "kernel failed");
    return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count();
}
