// What the blobs define, and what they share. Each function launches kernels of its own file.
#pragma once
#include <string>

#include "arithmetic.cuh"

// Each returns what it saw, a line for each call of CUDA.
std::string attributes_of_kernels();
std::string occupancy_of_kernels();
std::string cooperative_launch();
std::string cluster_launch();
std::string large_shared_memory();
std::string extended_launch();
std::string memory_of_symbols();

std::string launch_that_traps();
std::string launch_out_of_memory();
std::string launch_of_too_many_threads();
std::string launch_past_its_bounds();

inline std::string line(const char* what, cudaError_t error, const std::string& more = "") {
    return std::string(what) + ": " + cudaGetErrorName(error) + (more.empty() ? "" : " " + more) + "\n";
}
