// Device properties, in the layout of version 5 (hipGetDeviceProperties, ...R0000) and of version 6
// (...R0600), and device attributes. All come from one row of the arch table.
#include <cstdio>
#include <cstring>

#include "state.h"

#undef hipGetDeviceProperties

namespace fake_rocm {
namespace {

// Libraries compiled against version 5 read this layout.
struct DevicePropR0000 {
    char name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int clockRate;
    int memoryClockRate;
    int memoryBusWidth;
    size_t totalConstMem;
    int major;
    int minor;
    int multiProcessorCount;
    int l2CacheSize;
    int maxThreadsPerMultiProcessor;
    int computeMode;
    int clockInstructionRate;
    hipDeviceArch_t arch;
    int concurrentKernels;
    int pciDomainID;
    int pciBusID;
    int pciDeviceID;
    size_t maxSharedMemoryPerMultiProcessor;
    int isMultiGpuBoard;
    int canMapHostMemory;
    int gcnArch;
    char gcnArchName[256];
    int integrated;
    int cooperativeLaunch;
    int cooperativeMultiDeviceLaunch;
    int maxTexture1DLinear;
    int maxTexture1D;
    int maxTexture2D[2];
    int maxTexture3D[3];
    unsigned int* hdpMemFlushCntl;
    unsigned int* hdpRegFlushCntl;
    size_t memPitch;
    size_t textureAlignment;
    size_t texturePitchAlignment;
    int kernelExecTimeoutEnabled;
    int ECCEnabled;
    int tccDriver;
    int cooperativeMultiDeviceUnmatchedFunc;
    int cooperativeMultiDeviceUnmatchedGridDim;
    int cooperativeMultiDeviceUnmatchedBlockDim;
    int cooperativeMultiDeviceUnmatchedSharedMem;
    int isLargeBar;
    int asicRevision;
    int managedMemory;
    int directManagedMemAccessFromHost;
    int concurrentManagedAccess;
    int pageableMemoryAccess;
    int pageableMemoryAccessUsesHostPageTables;
};
static_assert(offsetof(DevicePropR0000, gcnArchName) == 396 && sizeof(DevicePropR0000) == 792, "layout of version 5");

constexpr int k_max_threads = 1024;
constexpr int k_max_grid = 2147483647;
constexpr int k_clock_khz = 2100000;
constexpr int k_memory_clock_khz = 1300000;
constexpr int k_bus_bits = 4096;
constexpr int k_l2_bytes = 4 << 20;

// Sets the fields that have one name in both layouts.
template <class Prop>
void fill_common(Prop* prop, const Device& device, int ordinal) {
    const Arch& arch = *device.m_arch;
    snprintf(prop->name, sizeof(prop->name), "fake %s", device.m_target.c_str());
    snprintf(prop->gcnArchName, sizeof(prop->gcnArchName), "%s", device.m_target.c_str());
    prop->totalGlobalMem = device.memory_bytes();
    prop->sharedMemPerBlock = arch.m_lds_bytes;
    prop->maxSharedMemoryPerMultiProcessor = arch.m_lds_bytes;
    prop->regsPerBlock = 65536;
    prop->warpSize = arch.wave_size();
    prop->maxThreadsPerBlock = k_max_threads;
    for (int& dim : prop->maxThreadsDim) dim = k_max_threads;
    prop->maxGridSize[0] = k_max_grid;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65536;
    prop->clockRate = k_clock_khz;
    prop->clockInstructionRate = 100000;
    prop->memoryClockRate = k_memory_clock_khz;
    prop->memoryBusWidth = k_bus_bits;
    prop->totalConstMem = 2147483647;
    prop->major = arch.m_major;
    prop->minor = arch.m_minor;
    prop->multiProcessorCount = arch.m_compute_units;
    prop->l2CacheSize = k_l2_bytes;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->concurrentKernels = 1;
    prop->pciBusID = ordinal + 1;
    prop->canMapHostMemory = 1;
    prop->cooperativeLaunch = 1;
    prop->memPitch = 2147483647;
    prop->textureAlignment = prop->texturePitchAlignment = 256;
    prop->isLargeBar = 1;
    prop->managedMemory = 1;
    prop->concurrentManagedAccess = 1;
    prop->pageableMemoryAccess = 1;
    prop->arch.hasGlobalInt32Atomics = prop->arch.hasSharedInt32Atomics = prop->arch.hasFloatAtomicAdd = 1;
    prop->arch.hasGlobalInt64Atomics = prop->arch.hasDoubles = prop->arch.has3dGrid = 1;
    prop->arch.hasWarpVote = prop->arch.hasWarpBallot = prop->arch.hasWarpShuffle = 1;
}

template <class Prop>
hipError_t start_properties(Prop* prop, int ordinal) {
    if (prop == nullptr) return hipErrorInvalidValue;
    if (!is_device(ordinal)) return hipErrorInvalidDevice;
    memset(static_cast<void*>(prop), 0, sizeof(*prop));
    fill_common(prop, devices()[ordinal], ordinal);
    return hipSuccess;
}

// Returns the value of the old integer field: gfx942 -> 942, gfx90a -> 910.
int numeric_arch(std::string_view name) {
    int value = 0;
    for (const char c : name.substr(3)) value = value * 10 + (c >= 'a' ? 10 + c - 'a' : c - '0');
    return value;
}

hipError_t properties_r0000(DevicePropR0000* prop, int ordinal) {
    const hipError_t error = start_properties(prop, ordinal);
    if (error == hipSuccess) prop->gcnArch = numeric_arch(devices()[ordinal].m_arch->m_name);
    return error;
}

hipError_t properties_r0600(hipDeviceProp_tR0600* prop, int ordinal) {
    const hipError_t error = start_properties(prop, ordinal);
    if (error != hipSuccess) return error;
    snprintf(prop->uuid.bytes, sizeof(prop->uuid.bytes), "GPU-fake%07d", ordinal);
    prop->sharedMemPerMultiprocessor = prop->sharedMemPerBlockOptin = prop->sharedMemPerBlock;
    prop->regsPerMultiprocessor = prop->regsPerBlock;
    prop->asyncEngineCount = 1;
    prop->unifiedAddressing = 1;
    prop->maxBlocksPerMultiProcessor = 32;
    prop->memoryPoolsSupported = 0;
    return hipSuccess;
}

// Returns an attribute: a field of the properties, or one of the few that are not; -1 if it is
// unknown.
int attribute_value(const hipDeviceProp_tR0600& prop, int attribute) {
    switch (attribute) {
        case hipDeviceAttributeEccEnabled:
            return prop.ECCEnabled;
        case hipDeviceAttributeAsyncEngineCount:
            return prop.asyncEngineCount;
        case hipDeviceAttributeCanMapHostMemory:
            return prop.canMapHostMemory;
        case hipDeviceAttributeClockRate:
            return prop.clockRate;
        case hipDeviceAttributeComputeMode:
            return prop.computeMode;
        case hipDeviceAttributeConcurrentKernels:
            return prop.concurrentKernels;
        case hipDeviceAttributeConcurrentManagedAccess:
            return prop.concurrentManagedAccess;
        case hipDeviceAttributeCooperativeLaunch:
            return prop.cooperativeLaunch;
        case hipDeviceAttributeIntegrated:
            return prop.integrated;
        case hipDeviceAttributeL2CacheSize:
            return prop.l2CacheSize;
        case hipDeviceAttributeComputeCapabilityMajor:
            return prop.major;
        case hipDeviceAttributeComputeCapabilityMinor:
            return prop.minor;
        case hipDeviceAttributeManagedMemory:
            return prop.managedMemory;
        case hipDeviceAttributeMaxBlockDimX:
            return prop.maxThreadsDim[0];
        case hipDeviceAttributeMaxBlockDimY:
            return prop.maxThreadsDim[1];
        case hipDeviceAttributeMaxBlockDimZ:
            return prop.maxThreadsDim[2];
        case hipDeviceAttributeMaxGridDimX:
            return prop.maxGridSize[0];
        case hipDeviceAttributeMaxGridDimY:
            return prop.maxGridSize[1];
        case hipDeviceAttributeMaxGridDimZ:
            return prop.maxGridSize[2];
        case hipDeviceAttributeMaxThreadsPerBlock:
            return prop.maxThreadsPerBlock;
        case hipDeviceAttributeMaxThreadsPerMultiProcessor:
            return prop.maxThreadsPerMultiProcessor;
        case hipDeviceAttributeMemoryBusWidth:
            return prop.memoryBusWidth;
        case hipDeviceAttributeMemoryClockRate:
            return prop.memoryClockRate;
        case hipDeviceAttributeMultiprocessorCount:
        case hipDeviceAttributePhysicalMultiProcessorCount:
            return prop.multiProcessorCount;
        case hipDeviceAttributePciBusId:
            return prop.pciBusID;
        case hipDeviceAttributePciDeviceId:
            return prop.pciDeviceID;
        case hipDeviceAttributePciDomainID:
            return prop.pciDomainID;
        case hipDeviceAttributeMaxRegistersPerBlock:
            return prop.regsPerBlock;
        case hipDeviceAttributeMaxRegistersPerMultiprocessor:
            return prop.regsPerMultiprocessor;
        case hipDeviceAttributeMaxSharedMemoryPerBlock:
        case hipDeviceAttributeSharedMemPerBlockOptin:
        case hipDeviceAttributeSharedMemPerMultiprocessor:
        case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor:
            return static_cast<int>(prop.sharedMemPerBlock);
        case hipDeviceAttributeTotalConstantMemory:
            return static_cast<int>(prop.totalConstMem);
        case hipDeviceAttributeUnifiedAddressing:
            return prop.unifiedAddressing;
        case hipDeviceAttributeWarpSize:
            return prop.warpSize;
        case hipDeviceAttributeMemoryPoolsSupported:
            return prop.memoryPoolsSupported;
        case hipDeviceAttributeImageSupport:
            return 0;
        default:
            return -1;
    }
}

}  // namespace
}  // namespace fake_rocm

using namespace fake_rocm;

extern "C" {

hipError_t hipGetDeviceProperties(DevicePropR0000* prop, int device) { return report(properties_r0000(prop, device)); }
hipError_t hipGetDevicePropertiesR0000(DevicePropR0000* prop, int device) {
    return report(properties_r0000(prop, device));
}
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* prop, int device) {
    return report(properties_r0600(prop, device));
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
    if (value == nullptr) return report(hipErrorInvalidValue);
    hipDeviceProp_tR0600 prop;
    const hipError_t error = properties_r0600(&prop, device);
    if (error != hipSuccess) return report(error);
    const int found = attribute_value(prop, attribute);
    if (found < 0) return report(hipErrorInvalidValue);
    *value = found;
    return hipSuccess;
}

hipError_t hipDeviceGet(hipDevice_t* device, int ordinal) {
    if (device == nullptr) return report(hipErrorInvalidValue);
    if (!is_device(ordinal)) return report(hipErrorInvalidDevice);
    *device = ordinal;
    return hipSuccess;
}

hipError_t hipDeviceGetName(char* name, int length, hipDevice_t device) {
    if (name == nullptr || length <= 0) return report(hipErrorInvalidValue);
    if (!is_device(device)) return report(hipErrorInvalidDevice);
    snprintf(name, length, "fake %s", devices()[device].m_target.c_str());
    return hipSuccess;
}

hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t device) {
    if (bytes == nullptr) return report(hipErrorInvalidValue);
    if (!is_device(device)) return report(hipErrorInvalidDevice);
    *bytes = devices()[device].memory_bytes();
    return hipSuccess;
}

hipError_t hipDeviceGetPCIBusId(char* id, int length, int device) {
    if (id == nullptr || length <= 0) return report(hipErrorInvalidValue);
    if (!is_device(device)) return report(hipErrorInvalidDevice);
    snprintf(id, length, "0000:%02x:00.0", device + 1);
    return hipSuccess;
}

hipError_t hipDeviceComputeCapability(int* major, int* minor, hipDevice_t device) {
    if (major == nullptr || minor == nullptr) return report(hipErrorInvalidValue);
    if (!is_device(device)) return report(hipErrorInvalidDevice);
    *major = devices()[device].m_arch->m_major;
    *minor = devices()[device].m_arch->m_minor;
    return hipSuccess;
}

hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least != nullptr) *least = 1;
    if (greatest != nullptr) *greatest = -1;
    return hipSuccess;
}

hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
    if (can == nullptr) return report(hipErrorInvalidValue);
    if (!is_device(device) || !is_device(peer)) return report(hipErrorInvalidDevice);
    *can = device != peer;
    return hipSuccess;
}
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int) {
    return report(is_device(peer) ? hipSuccess : hipErrorInvalidDevice);
}
hipError_t hipDeviceDisablePeerAccess(int peer) { return report(is_device(peer) ? hipSuccess : hipErrorInvalidDevice); }

}  // extern "C"
