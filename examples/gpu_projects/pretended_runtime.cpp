// Provides the part of the CUDA runtime that programs need before and after they launch kernels, on
// a machine without a GPU: one device whose memory is the host's. tests/support/cuda_spy.cpp, which
// this is compiled with, records the kernels.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor:
            *value = 9;
            break;
        case cudaDevAttrMultiProcessorCount:
            *value = 132;
            break;
        case cudaDevAttrMaxThreadsPerBlock:
            *value = 1024;
            break;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = 2048;
            break;
        case cudaDevAttrWarpSize:
            *value = 32;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = 48 << 10;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = 227 << 10;
            break;
        case cudaDevAttrMaxGridDimX:
            *value = 0x7fffffff;
            break;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ:
            *value = 0xffff;
            break;
        default:
            *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    std::memset(properties, 0, sizeof *properties);
    std::strcpy(properties->name, "pretended");
    properties->major = 9;
    properties->multiProcessorCount = 132;
    properties->maxThreadsPerBlock = 1024;
    properties->totalGlobalMem = std::size_t{8} << 30;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
    *available = *total = std::size_t{8} << 30;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t size) {
    *memory = std::calloc(1, size + 1);
    return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMallocAsync(void** memory, std::size_t size, cudaStream_t) { return cudaMalloc(memory, size); }
cudaError_t cudaMallocHost(void** memory, std::size_t size) { return cudaMalloc(memory, size); }
cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned) { return cudaMalloc(memory, size); }
cudaError_t cudaFree(void* memory) {
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t) { return cudaFree(memory); }
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
    std::memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(memory);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind) {
    std::memmove(to, from, size);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy(to, from, size, kind);
}
cudaError_t cudaMemset(void* memory, int value, std::size_t size) {
    std::memset(memory, value, size);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t size, cudaStream_t) {
    return cudaMemset(memory, value, size);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = nullptr;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = nullptr;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
    *milliseconds = 1;
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

// The names under which code compiled with --default-stream per-thread calls them.
#define PER_THREAD(name, suffix) decltype(name) name##suffix __attribute__((alias(#name)))
PER_THREAD(cudaMallocAsync, _ptsz);
PER_THREAD(cudaFreeAsync, _ptsz);
PER_THREAD(cudaMemcpy, _ptds);
PER_THREAD(cudaMemcpyAsync, _ptsz);
PER_THREAD(cudaMemset, _ptds);
PER_THREAD(cudaMemsetAsync, _ptsz);
PER_THREAD(cudaStreamSynchronize, _ptsz);
PER_THREAD(cudaStreamWaitEvent, _ptsz);
PER_THREAD(cudaStreamIsCapturing, _ptsz);
PER_THREAD(cudaEventRecord, _ptsz);

}  // extern "C"
