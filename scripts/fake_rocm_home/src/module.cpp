// hipModule...: loads code objects of the real compiler and launches their functions, which are
// recorded and not run.
#include <hip/hip_runtime_api.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "launch_log.h"
#include "registry.h"
#include "state.h"
#include "stream.h"

struct ihipModuleSymbol_t {
    std::string m_name;
    const fake_rocm::CodeTargets* m_targets;
};

struct ihipModule_t {
    fake_rocm::CodeTargets m_targets;
    std::vector<std::unique_ptr<ihipModuleSymbol_t>> m_functions;
};

namespace fake_rocm {
namespace {

constexpr char k_elf_magic[] = "\177ELF";

hipError_t load(hipModule_t* module, const void* image) {
    if (module == nullptr || image == nullptr) return hipErrorInvalidValue;
    const Device* device = current_device_or_null();
    if (device == nullptr) return hipErrorNoDevice;
    auto loaded = std::make_unique<ihipModule_t>();
    // A bare code object is assumed to be for this device.
    if (memcmp(image, k_elf_magic, 4) == 0)
        loaded->m_targets.m_any = true;
    else if (!read_code_targets(image, &loaded->m_targets))
        return hipErrorInvalidImage;
    if (!loaded->m_targets.holds(device->m_target)) return hipErrorNoBinaryForGpu;
    *module = loaded.release();
    return hipSuccess;
}

}  // namespace
}  // namespace fake_rocm

using namespace fake_rocm;

extern "C" {

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) { return report(load(module, image)); }
hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned int, hipJitOption*, void**) {
    return report(load(module, image));
}

hipError_t hipModuleLoad(hipModule_t* module, const char* path) {
    if (path == nullptr) return report(hipErrorInvalidValue);
    std::ifstream file(path, std::ios::binary);
    if (!file) return report(hipErrorFileNotFound);
    std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    image.resize(image.size() + 64);  // with this, a short file is not read past its end, and is no image
    return report(load(module, image.data()));
}

hipError_t hipModuleUnload(hipModule_t module) {
    if (module == nullptr) return report(hipErrorInvalidHandle);
    delete module;
    return hipSuccess;
}

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
    if (function == nullptr || name == nullptr) return report(hipErrorInvalidValue);
    if (module == nullptr) return report(hipErrorInvalidHandle);
    module->m_functions.push_back(std::make_unique<ihipModuleSymbol_t>(ihipModuleSymbol_t{name, &module->m_targets}));
    *function = module->m_functions.back().get();
    return hipSuccess;
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                 unsigned int shared_bytes, hipStream_t stream, void**, void**) {
    const Device* device = current_device_or_null();
    if (device == nullptr) return report(hipErrorNoDevice);
    if (function == nullptr || !is_stream(stream)) return report(hipErrorInvalidHandle);
    const dim3 grid(grid_x, grid_y, grid_z), block(block_x, block_y, block_z);
    if (uint64_t{grid.x} * grid.y * grid.z == 0 || uint64_t{block.x} * block.y * block.z == 0)
        return report(hipErrorInvalidConfiguration);
    if (!function->m_targets->holds(device->m_target)) return report(hipErrorNoBinaryForGpu);
    if (is_logging()) log_launch("standin", function->m_name, grid, block, shared_bytes);
    return hipSuccess;
}

}  // extern "C"

// This function is not extern "C" in the real library. Its grid is given in threads, not blocks.
hipError_t hipExtModuleLaunchKernel(hipFunction_t function, uint32_t threads_x, uint32_t threads_y, uint32_t threads_z,
                                    uint32_t block_x, uint32_t block_y, uint32_t block_z, size_t shared_bytes,
                                    hipStream_t stream, void** arguments, void** extra, hipEvent_t start,
                                    hipEvent_t stop, uint32_t) {
    if (block_x == 0 || block_y == 0 || block_z == 0) return report(hipErrorInvalidConfiguration);
    if (start != nullptr && is_event(start)) record_event(start);
    const hipError_t error =
        hipModuleLaunchKernel(function, threads_x / block_x, threads_y / block_y, threads_z / block_z, block_x, block_y,
                              block_z, static_cast<unsigned int>(shared_bytes), stream, arguments, extra);
    if (stop != nullptr && is_event(stop)) record_event(stop);
    return error;
}

hipError_t hipHccModuleLaunchKernel(hipFunction_t function, uint32_t threads_x, uint32_t threads_y, uint32_t threads_z,
                                    uint32_t block_x, uint32_t block_y, uint32_t block_z, size_t shared_bytes,
                                    hipStream_t stream, void** arguments, void** extra, hipEvent_t start,
                                    hipEvent_t stop) {
    return hipExtModuleLaunchKernel(function, threads_x, threads_y, threads_z, block_x, block_y, block_z, shared_bytes,
                                    stream, arguments, extra, start, stop, 0);
}
