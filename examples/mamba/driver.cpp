// Calls one forward variant of Mamba's selective scan (float) as selective_scan.cpp does: by its
// function, for which the extension has a stub. It is loaded into a Python process that has
// imported the extension.
#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>

#include "selective_scan.h"

template <typename Input, typename Weight>
void selective_scan_fwd_cuda(SSMParamsBase& params, cudaStream_t stream);

// Returns the seconds of the call. `said` receives the message of an exception, or an empty string.
extern "C" double call_forward(char* said, std::size_t size) {
    SSMParamsBase params = {};
    params.batch = params.dim = params.n_groups = params.n_chunks = params.dim_ngroups_ratio = 1;
    params.seqlen = 1024;
    params.dstate = 16;
    said[0] = 0;
    const auto begun = std::chrono::steady_clock::now();
    try {
        selective_scan_fwd_cuda<float, float>(params, nullptr);
    } catch (const std::exception& e) {
        std::snprintf(said, size, "%s", e.what());
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}
