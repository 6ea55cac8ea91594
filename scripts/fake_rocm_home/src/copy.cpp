// Copies and fills memory. All calls are synchronous; a stream is only checked to be one.
#include <cstring>

#include "memory.h"
#include "registry.h"
#include "state.h"
#include "stream.h"

namespace fake_rocm {
namespace {

// Returns whether the allocation at `pointer`, if it is ours, holds `bytes`. A plain host address
// is only valid on the host side.
bool holds(const void* pointer, size_t bytes, bool must_be_device) {
    Allocation found;
    if (!allocations().find(pointer, &found)) return !must_be_device;
    return static_cast<const char*>(pointer) + bytes <= found.m_base + found.m_bytes;
}

hipError_t copy_rows(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height,
                     hipMemcpyKind kind, hipStream_t stream) {
    if (kind < hipMemcpyHostToHost || kind > hipMemcpyDefault) return hipErrorInvalidMemcpyDirection;
    if (!is_stream(stream)) return hipErrorInvalidHandle;
    if (width == 0 || height == 0) return hipSuccess;
    if (dst == nullptr || src == nullptr) return hipErrorInvalidValue;
    if (height > 1 && (dst_pitch < width || src_pitch < width)) return hipErrorInvalidPitchValue;
    const bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
    const bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
    if (!holds(dst, dst_pitch * (height - 1) + width, to_device)) return hipErrorInvalidValue;
    if (!holds(src, src_pitch * (height - 1) + width, from_device)) return hipErrorInvalidValue;
    for (size_t row = 0; row < height; ++row)
        memmove(static_cast<char*>(dst) + row * dst_pitch, static_cast<const char*>(src) + row * src_pitch, width);
    return hipSuccess;
}

hipError_t copy(void* dst, const void* src, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
    return report(copy_rows(dst, bytes, src, bytes, bytes, 1, kind, stream));
}

template <class T>
hipError_t fill(void* dst, T value, size_t count, hipStream_t stream) {
    if (!is_stream(stream)) return report(hipErrorInvalidHandle);
    if (count == 0) return hipSuccess;
    if (dst == nullptr || !holds(dst, count * sizeof(T), true)) return report(hipErrorInvalidValue);
    for (size_t i = 0; i < count; ++i) memcpy(static_cast<char*>(dst) + i * sizeof(T), &value, sizeof(T));
    return hipSuccess;
}

hipError_t fill_rows(void* dst, size_t pitch, int value, size_t width, size_t height, hipStream_t stream) {
    if (!is_stream(stream)) return report(hipErrorInvalidHandle);
    if (width == 0 || height == 0) return hipSuccess;
    if (dst == nullptr || !holds(dst, pitch * (height - 1) + width, true)) return report(hipErrorInvalidValue);
    for (size_t row = 0; row < height; ++row) memset(static_cast<char*>(dst) + row * pitch, value, width);
    return hipSuccess;
}

}  // namespace
}  // namespace fake_rocm

using namespace fake_rocm;

extern "C" {

hipError_t hipMemcpy(void* dst, const void* src, size_t bytes, hipMemcpyKind kind) {
    return copy(dst, src, bytes, kind, nullptr);
}
hipError_t hipMemcpyAsync(void* dst, const void* src, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
    return copy(dst, src, bytes, kind, stream);
}
hipError_t hipMemcpyWithStream(void* dst, const void* src, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
    return copy(dst, src, bytes, kind, stream);
}
hipError_t hipMemcpyHtoD(hipDeviceptr_t dst, void* src, size_t bytes) {
    return copy(dst, src, bytes, hipMemcpyHostToDevice, nullptr);
}
hipError_t hipMemcpyDtoH(void* dst, hipDeviceptr_t src, size_t bytes) {
    return copy(dst, src, bytes, hipMemcpyDeviceToHost, nullptr);
}
hipError_t hipMemcpyDtoD(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes) {
    return copy(dst, src, bytes, hipMemcpyDeviceToDevice, nullptr);
}
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t dst, void* src, size_t bytes, hipStream_t stream) {
    return copy(dst, src, bytes, hipMemcpyHostToDevice, stream);
}
hipError_t hipMemcpyDtoHAsync(void* dst, hipDeviceptr_t src, size_t bytes, hipStream_t stream) {
    return copy(dst, src, bytes, hipMemcpyDeviceToHost, stream);
}
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes, hipStream_t stream) {
    return copy(dst, src, bytes, hipMemcpyDeviceToDevice, stream);
}
hipError_t hipMemcpyPeer(void* dst, int dst_device, const void* src, int src_device, size_t bytes) {
    if (!is_device(dst_device) || !is_device(src_device)) return report(hipErrorInvalidDevice);
    return copy(dst, src, bytes, hipMemcpyDeviceToDevice, nullptr);
}
hipError_t hipMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t bytes,
                              hipStream_t stream) {
    if (!is_device(dst_device) || !is_device(src_device)) return report(hipErrorInvalidDevice);
    return copy(dst, src, bytes, hipMemcpyDeviceToDevice, stream);
}
hipError_t hipMemcpy2D(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height,
                       hipMemcpyKind kind) {
    return report(copy_rows(dst, dst_pitch, src, src_pitch, width, height, kind, nullptr));
}
hipError_t hipMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height,
                            hipMemcpyKind kind, hipStream_t stream) {
    return report(copy_rows(dst, dst_pitch, src, src_pitch, width, height, kind, stream));
}

// A device variable is in its image; otherwise it is the host's variable of that name.
hipError_t hipMemcpyToSymbol(const void* symbol, const void* src, size_t bytes, size_t offset, hipMemcpyKind) {
    symbol = registry().find_variable(symbol);
    if (symbol == nullptr) return report(hipErrorInvalidSymbol);
    return copy(static_cast<char*>(const_cast<void*>(symbol)) + offset, src, bytes, hipMemcpyDefault, nullptr);
}
hipError_t hipMemcpyFromSymbol(void* dst, const void* symbol, size_t bytes, size_t offset, hipMemcpyKind) {
    symbol = registry().find_variable(symbol);
    if (symbol == nullptr) return report(hipErrorInvalidSymbol);
    return copy(dst, static_cast<const char*>(symbol) + offset, bytes, hipMemcpyDefault, nullptr);
}
hipError_t hipMemcpyToSymbolAsync(const void* symbol, const void* src, size_t bytes, size_t offset, hipMemcpyKind kind,
                                  hipStream_t) {
    return hipMemcpyToSymbol(symbol, src, bytes, offset, kind);
}
hipError_t hipMemcpyFromSymbolAsync(void* dst, const void* symbol, size_t bytes, size_t offset, hipMemcpyKind kind,
                                    hipStream_t) {
    return hipMemcpyFromSymbol(dst, symbol, bytes, offset, kind);
}
hipError_t hipGetSymbolAddress(void** pointer, const void* symbol) {
    if (pointer == nullptr) return report(hipErrorInvalidValue);
    symbol = registry().find_variable(symbol);
    if (symbol == nullptr) return report(hipErrorInvalidSymbol);
    *pointer = const_cast<void*>(symbol);
    return hipSuccess;
}

hipError_t hipMemset(void* dst, int value, size_t bytes) { return fill_rows(dst, bytes, value, bytes, 1, nullptr); }
hipError_t hipMemsetAsync(void* dst, int value, size_t bytes, hipStream_t stream) {
    return fill_rows(dst, bytes, value, bytes, 1, stream);
}
hipError_t hipMemset2D(void* dst, size_t pitch, int value, size_t width, size_t height) {
    return fill_rows(dst, pitch, value, width, height, nullptr);
}
hipError_t hipMemset2DAsync(void* dst, size_t pitch, int value, size_t width, size_t height, hipStream_t stream) {
    return fill_rows(dst, pitch, value, width, height, stream);
}
hipError_t hipMemsetD8(hipDeviceptr_t dst, unsigned char value, size_t count) {
    return fill(dst, value, count, nullptr);
}
hipError_t hipMemsetD8Async(hipDeviceptr_t dst, unsigned char value, size_t count, hipStream_t stream) {
    return fill(dst, value, count, stream);
}
hipError_t hipMemsetD16(hipDeviceptr_t dst, unsigned short value, size_t count) {
    return fill(dst, value, count, nullptr);
}
hipError_t hipMemsetD16Async(hipDeviceptr_t dst, unsigned short value, size_t count, hipStream_t stream) {
    return fill(dst, value, count, stream);
}
hipError_t hipMemsetD32(hipDeviceptr_t dst, int value, size_t count) { return fill(dst, value, count, nullptr); }
hipError_t hipMemsetD32Async(hipDeviceptr_t dst, int value, size_t count, hipStream_t stream) {
    return fill(dst, value, count, stream);
}

}  // extern "C"

FAKE_ROCM_SPT(hipMemcpy);
FAKE_ROCM_SPT(hipMemcpyAsync);
FAKE_ROCM_SPT(hipMemcpy2D);
FAKE_ROCM_SPT(hipMemcpyToSymbol);
FAKE_ROCM_SPT(hipMemcpyFromSymbol);
FAKE_ROCM_SPT(hipMemset);
FAKE_ROCM_SPT(hipMemsetAsync);
FAKE_ROCM_SPT(hipMemset2D);
