// Launches of both kinds: closures of kernels compiled by this home's hipcc, which run, and kernels
// that the real compiler registered, which are only recorded.
#include <fake_rocm/kernel_abi.h>

#include <cstdio>
#include <mutex>

#include "block.h"
#include "launch_log.h"
#include "registry.h"
#include "state.h"
#include "stream.h"

namespace fake_rocm {
namespace {

constexpr uint64_t k_most_threads = 1024;

thread_local bool t_in_kernel = false;

hipError_t check_configuration(const Device& device, dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream) {
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0) return hipErrorInvalidConfiguration;
    if (block.x > k_most_threads || block.y > k_most_threads || block.z > k_most_threads || threads > k_most_threads)
        return hipErrorInvalidConfiguration;
    if (shared_bytes > device.m_arch->m_lds_bytes) return hipErrorInvalidValue;
    return is_stream(stream) ? hipSuccess : hipErrorInvalidHandle;
}

bool was_compiled_for(const char* archs, const std::string& device) {
    if (*archs == '\0') return true;
    CodeTargets targets;
    targets.m_targets = split(archs, ',');
    return targets.holds(device);
}

hipError_t run_kernel(const fake_rocm_kernel& kernel, dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream,
                      void (*run_thread)(const void*), const void* closure) {
    const Device* device = current_device_or_null();
    if (device == nullptr) return hipErrorNoDevice;
    if (t_in_kernel) return hipErrorNotSupported;  // a kernel that launches a kernel
    const hipError_t error = check_configuration(*device, grid, block, shared_bytes, stream);
    if (error != hipSuccess) return error;
    if (!was_compiled_for(kernel.archs, device->m_target)) return hipErrorNoBinaryForGpu;
    if (is_logging()) {
        std::string name;
        CodeTargets targets;
        if (!registry().find_kernel(kernel.address, &name, &targets))
            name = name_of_function(kernel.address, kernel.source_text);
        log_launch("cpu", name, grid, block, shared_bytes);
    }
    static auto& turn = *new std::mutex;
    const std::lock_guard<std::mutex> lock(turn);
    t_in_kernel = true;
    const bool ran = block_runner().run(grid, block, device->m_arch->wave_size(), run_thread, closure);
    t_in_kernel = false;
    return ran ? hipSuccess : hipErrorLaunchOutOfResources;
}

hipError_t record_kernel(const void* function, dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream) {
    const Device* device = current_device_or_null();
    if (device == nullptr) return hipErrorNoDevice;
    std::string name;
    CodeTargets targets;
    if (!registry().find_kernel(function, &name, &targets)) {
        fprintf(stderr,
                "fake_rocm: no kernel is registered at %p. A kernel compiled by this home's hipcc is launched through "
                "its typed pointer (hipLaunchKernelGGL, <<<>>>, or hipLaunchKernel(kernel, ...) without a cast)\n",
                function);
        return hipErrorInvalidDeviceFunction;
    }
    const hipError_t error = check_configuration(*device, grid, block, shared_bytes, stream);
    if (error != hipSuccess) return error;
    if (!targets.holds(device->m_target)) return hipErrorNoBinaryForGpu;
    if (is_logging()) log_launch("standin", name, grid, block, shared_bytes);
    return hipSuccess;
}

// <<<>>> pushes this, and the kernel's host stub pops it again.
struct CallConfiguration {
    dim3 m_grid, m_block;
    size_t m_shared;
    hipStream_t m_stream;
};
std::vector<CallConfiguration>& call_configurations() {
    thread_local std::vector<CallConfiguration> stack;
    return stack;
}

}  // namespace
}  // namespace fake_rocm

using namespace fake_rocm;

extern "C" {

hipError_t fake_rocm_launch(const fake_rocm_kernel* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                            hipStream_t stream, void (*run_thread)(const void*), const void* closure) {
    if (kernel->address == nullptr) return report(hipErrorInvalidDeviceFunction);
    return report(run_kernel(*kernel, grid, block, shared_bytes, stream, run_thread, closure));
}

hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t shared_bytes,
                           hipStream_t stream) {
    return report(record_kernel(function, grid, block, shared_bytes, stream));
}

hipError_t hipLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void**, unsigned int shared_bytes,
                                      hipStream_t stream) {
    return report(record_kernel(function, grid, block, shared_bytes, stream));
}

hipError_t hipExtLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t shared_bytes,
                              hipStream_t stream, hipEvent_t start, hipEvent_t stop, int) {
    for (const hipEvent_t event : {start, stop})
        if (event != nullptr && !is_event(event)) return report(hipErrorInvalidHandle);
    if (start != nullptr) record_event(start);
    const hipError_t error = record_kernel(function, grid, block, shared_bytes, stream);
    if (stop != nullptr) record_event(stop);
    return report(error);
}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream) {
    call_configurations().push_back({grid, block, shared_bytes, stream});
    return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, hipStream_t* stream) {
    if (call_configurations().empty()) return report(hipErrorMissingConfiguration);
    const CallConfiguration top = call_configurations().back();
    call_configurations().pop_back();
    *grid = top.m_grid;
    *block = top.m_block;
    *shared_bytes = top.m_shared;
    *stream = top.m_stream;
    return hipSuccess;
}

hipError_t hipFuncSetAttribute(const void* function, hipFuncAttribute attribute, int value) {
    const Device* device = current_device_or_null();
    if (device == nullptr) return report(hipErrorNoDevice);
    if (function == nullptr) return report(hipErrorInvalidDeviceFunction);
    if (attribute != hipFuncAttributeMaxDynamicSharedMemorySize &&
        attribute != hipFuncAttributePreferredSharedMemoryCarveout)
        return report(hipErrorInvalidValue);
    const bool too_large = attribute == hipFuncAttributeMaxDynamicSharedMemorySize && value >= 0 &&
                           static_cast<size_t>(value) > device->m_arch->m_lds_bytes;
    return report(too_large || value < -1 ? hipErrorInvalidValue : hipSuccess);
}

hipError_t hipFuncSetCacheConfig(const void* function, hipFuncCache_t) {
    return report(function == nullptr ? hipErrorInvalidDeviceFunction : hipSuccess);
}

hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* function) {
    const Device* device = current_device_or_null();
    if (attributes == nullptr) return report(hipErrorInvalidValue);
    if (device == nullptr) return report(hipErrorNoDevice);
    if (function == nullptr) return report(hipErrorInvalidDeviceFunction);
    *attributes = {};
    attributes->maxThreadsPerBlock = k_most_threads;
    attributes->numRegs = 64;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(device->m_arch->m_lds_bytes);
    return hipSuccess;
}

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block_size,
                                                                 size_t dynamic_shared, unsigned int) {
    const Device* device = current_device_or_null();
    if (device == nullptr) return report(hipErrorNoDevice);
    if (blocks == nullptr || block_size <= 0) return report(hipErrorInvalidValue);
    if (function == nullptr) return report(hipErrorInvalidDeviceFunction);
    const size_t by_threads = 2048 / static_cast<size_t>(block_size);
    const size_t by_shared = dynamic_shared == 0 ? by_threads : device->m_arch->m_lds_bytes / dynamic_shared;
    *blocks = static_cast<int>(by_threads < by_shared ? by_threads : by_shared);
    return hipSuccess;
}
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_size,
                                                        size_t dynamic_shared) {
    return hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic_shared, 0);
}
hipError_t hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void* function, size_t, int block_limit) {
    const Device* device = current_device_or_null();
    if (device == nullptr) return report(hipErrorNoDevice);
    if (grid == nullptr || block == nullptr) return report(hipErrorInvalidValue);
    if (function == nullptr) return report(hipErrorInvalidDeviceFunction);
    *block = block_limit > 0 && block_limit < static_cast<int>(k_most_threads) ? block_limit : k_most_threads;
    *grid = device->m_arch->m_compute_units * (2048 / *block);
    return hipSuccess;
}

}  // extern "C"

FAKE_ROCM_SPT(hipLaunchKernel);
FAKE_ROCM_SPT(hipLaunchCooperativeKernel);
