// Tests the host side of the runtime: what calls return, and which error code a bad argument gets.
#include <cstring>

#include "check.h"

__global__ void touch(int* data) { *data = 1; }

void check_devices() {
    int count = 0, device = -1, value = 0;
    CHECK_HIP(hipGetDeviceCount(&count));
    CHECK(count == 2);
    CHECK_FAILS(hipSetDevice(2), hipErrorInvalidDevice);
    CHECK_HIP(hipSetDevice(1));
    CHECK_HIP(hipGetDevice(&device));
    CHECK(device == 1);
    hipDeviceProp_t prop;
    CHECK_HIP(hipGetDeviceProperties(&prop, 0));
    CHECK(strcmp(prop.gcnArchName, "gfx942") == 0 && strcmp(prop.name, "fake gfx942") == 0);
    CHECK(prop.multiProcessorCount == 304 && prop.warpSize == 64 && prop.major == 9 && prop.maxThreadsPerBlock == 1024);
    CHECK_HIP(hipGetDeviceProperties(&prop, 1));
    CHECK(prop.warpSize == 32 && prop.multiProcessorCount == 96);
    CHECK_FAILS(hipGetDeviceProperties(&prop, 2), hipErrorInvalidDevice);
    CHECK_FAILS(hipGetDeviceProperties(nullptr, 0), hipErrorInvalidValue);
    CHECK_HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeMultiprocessorCount, 0));
    CHECK(value == 304);
    CHECK_FAILS(hipDeviceGetAttribute(&value, static_cast<hipDeviceAttribute_t>(9998), 0), hipErrorInvalidValue);
    CHECK_HIP(hipRuntimeGetVersion(&value));
    CHECK(value == HIP_VERSION);
    CHECK_HIP(hipSetDevice(0));
}

void check_memory() {
    char host[256] = "words";
    char* device = device_array<char>(256);
    CHECK_HIP(hipMemcpy(device, host, 256, hipMemcpyHostToDevice));
    CHECK_FAILS(hipMemcpy(device, host, 257, hipMemcpyHostToDevice), hipErrorInvalidValue);
    CHECK_FAILS(hipMemcpy(host, host, 1, hipMemcpyHostToDevice), hipErrorInvalidValue);
    CHECK_FAILS(hipMemcpy(device, nullptr, 1, hipMemcpyDefault), hipErrorInvalidValue);
    CHECK_FAILS(hipMemcpy(device, host, 1, static_cast<hipMemcpyKind>(7)), hipErrorInvalidMemcpyDirection);
    CHECK_FAILS(hipMemset(device + 200, 0, 57), hipErrorInvalidValue);
    CHECK_HIP(hipMemsetD32(device, 0x01020304, 2));
    CHECK(read_back(device) == 4 && read_back(device + 7) == 1);
    CHECK_HIP(hipMemcpy2D(host, 16, device, 4, 4, 2, hipMemcpyDeviceToHost));
    CHECK(host[0] == 4 && host[16] == 4 && strcmp(host + 1, "\3\2\1s") == 0);

    hipPointerAttribute_t attributes;
    CHECK_HIP(hipPointerGetAttributes(&attributes, device + 10));
    CHECK(attributes.type == hipMemoryTypeDevice && attributes.device == 0);
    CHECK_HIP(hipPointerGetAttributes(&attributes, host));
    CHECK(attributes.type == hipMemoryTypeUnregistered);

    size_t free_bytes = 0, total = 0;
    CHECK_HIP(hipMemGetInfo(&free_bytes, &total));
    CHECK(total - free_bytes == 256 && total == size_t{192} << 30);
    void* more = nullptr;
    CHECK_FAILS(hipMalloc(&more, total), hipErrorOutOfMemory);
    CHECK(more == nullptr);
    CHECK_HIP(hipMalloc(&more, 0));
    CHECK(more == nullptr);
    CHECK_FAILS(hipFree(device + 1), hipErrorInvalidValue);
    CHECK_HIP(hipFree(device));
    CHECK_FAILS(hipFree(device), hipErrorInvalidValue);
    CHECK_HIP(hipFree(nullptr));
    int* pinned = nullptr;
    CHECK_HIP(hipHostMalloc(&pinned, 64));
    CHECK_FAILS(hipFree(pinned), hipErrorInvalidValue);
    CHECK_HIP(hipHostFree(pinned));
}

void check_streams() {
    hipStream_t stream = nullptr;
    hipEvent_t start = nullptr, stop = nullptr, untimed = nullptr;
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK_HIP(hipEventCreate(&start));
    CHECK_HIP(hipEventCreate(&stop));
    CHECK_HIP(hipEventCreateWithFlags(&untimed, hipEventDisableTiming));
    float milliseconds = -1;
    CHECK_FAILS(hipEventElapsedTime(&milliseconds, start, stop), hipErrorInvalidHandle);
    CHECK_HIP(hipEventRecord(start, stream));
    CHECK_HIP(hipStreamWaitEvent(stream, start));
    CHECK_HIP(hipEventRecord(stop, stream));
    CHECK_HIP(hipEventQuery(stop));
    CHECK_HIP(hipEventElapsedTime(&milliseconds, start, stop));
    CHECK(milliseconds >= 0);
    CHECK_HIP(hipEventRecord(untimed, stream));
    CHECK_FAILS(hipEventElapsedTime(&milliseconds, start, untimed), hipErrorInvalidHandle);
    CHECK_FAILS(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal), hipErrorNotSupported);
    CHECK_HIP(hipStreamSynchronize(stream));
    CHECK_HIP(hipStreamDestroy(stream));
    CHECK_FAILS(hipStreamSynchronize(stream), hipErrorInvalidHandle);
    CHECK_FAILS(hipStreamDestroy(nullptr), hipErrorInvalidHandle);
    CHECK_HIP(hipEventDestroy(start));
    CHECK_FAILS(hipEventRecord(start), hipErrorInvalidHandle);
}

void check_launches() {
    int* data = device_array<int>(1);
    const auto status_of = [&](dim3 grid, dim3 block, size_t shared, hipStream_t stream) {
        (void)hipGetLastError();
        hipLaunchKernelGGL(touch, grid, block, shared, stream, data);
        return hipGetLastError();
    };
    CHECK_FAILS(status_of(dim3(0), 1, 0, nullptr), hipErrorInvalidConfiguration);
    CHECK_FAILS(status_of(1, dim3(1025), 0, nullptr), hipErrorInvalidConfiguration);
    CHECK_FAILS(status_of(1, dim3(64, 64), 0, nullptr), hipErrorInvalidConfiguration);
    CHECK_FAILS(status_of(1, 1, 65537, nullptr), hipErrorInvalidValue);
    CHECK_FAILS(status_of(1, 1, 0, reinterpret_cast<hipStream_t>(data)), hipErrorInvalidHandle);
    CHECK_HIP(status_of(1, 1, 65536, hipStreamPerThread));
    CHECK_FAILS(hipLaunchKernel(reinterpret_cast<const void*>(&touch), dim3(1), dim3(1), nullptr, 0, nullptr),
                hipErrorInvalidDeviceFunction);
    CHECK_FAILS(hipPeekAtLastError(), hipErrorInvalidDeviceFunction);
    CHECK_FAILS(hipGetLastError(), hipErrorInvalidDeviceFunction);
    CHECK_HIP(hipGetLastError());
    CHECK_HIP(hipFuncSetAttribute(touch, hipFuncAttributeMaxDynamicSharedMemorySize, 65536));
    CHECK_FAILS(hipFuncSetAttribute(touch, hipFuncAttributeMaxDynamicSharedMemorySize, 65537), hipErrorInvalidValue);
    hipFuncAttributes attributes;
    CHECK_HIP(hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&touch)));
    CHECK(attributes.maxThreadsPerBlock == 1024);
    int blocks = 0;
    CHECK_HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, touch, 256, 32768));
    CHECK(blocks == 2);
    hipModule_t module = nullptr;
    CHECK_FAILS(hipModuleLoadData(&module, "no image at all, and long enough to be read"), hipErrorInvalidImage);
    CHECK_FAILS(hipModuleLoad(&module, "/nonexistent"), hipErrorFileNotFound);
    CHECK(strcmp(hipGetErrorName(hipErrorNoBinaryForGpu), "hipErrorNoBinaryForGpu") == 0);
    CHECK(strcmp(hipGetErrorString(hipErrorOutOfMemory), "out of memory") == 0);
}

int main() {
    check_devices();
    check_memory();
    check_streams();
    check_launches();
    return finish();
}
