// Allocates memory. "Device" memory is host memory. What a test can notice is kept: limits, kinds,
// bad pointers.
#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "state.h"

namespace fake_rocm {
namespace {

constexpr size_t k_alignment = 256;
// Fresh device memory is not zero, so that a kernel that forgets to write is noticed. Only the
// start is filled, so that a large allocation stays untouched.
constexpr size_t k_poisoned_bytes = 1 << 20;
constexpr int k_poison = 0xA5;

}  // namespace

AllocationTable& allocations() { return immortal<AllocationTable>(); }

void* AllocationTable::allocate(size_t bytes, MemoryKind kind, unsigned int flags) {
    const Device* device = current_device_or_null();
    if (device == nullptr) return nullptr;
    if (kind != MemoryKind::Host && bytes > device->memory_bytes() - bytes_on(current_device())) return nullptr;
    void* block = nullptr;
    if (posix_memalign(&block, k_alignment, bytes) != 0) return nullptr;
    if (kind == MemoryKind::Device) memset(block, k_poison, std::min(bytes, k_poisoned_bytes));
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_allocations[static_cast<char*>(block)] = {static_cast<char*>(block), bytes, kind, current_device(), flags, block};
    return block;
}

bool AllocationTable::adopt(void* pointer, size_t bytes, unsigned int flags) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    char* base = static_cast<char*>(pointer);
    return m_allocations
        .try_emplace(base, Allocation{base, bytes, MemoryKind::Registered, current_device(), flags, nullptr})
        .second;
}

bool AllocationTable::release(void* pointer, MemoryKind kind, MemoryKind other) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    const auto it = m_allocations.find(static_cast<char*>(pointer));
    if (it == m_allocations.end() || (it->second.m_kind != kind && it->second.m_kind != other)) return false;
    free(it->second.m_block);
    m_allocations.erase(it);
    return true;
}

bool AllocationTable::find(const void* address, Allocation* found) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    const char* byte = static_cast<const char*>(address);
    auto it = m_allocations.upper_bound(const_cast<char*>(byte));
    if (it == m_allocations.begin()) return false;
    --it;
    if (byte >= it->second.m_base + it->second.m_bytes) return false;
    *found = it->second;
    return true;
}

size_t AllocationTable::bytes_on(int device) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    size_t bytes = 0;
    for (const auto& [base, allocation] : m_allocations)
        if (allocation.m_device == device &&
            (allocation.m_kind == MemoryKind::Device || allocation.m_kind == MemoryKind::Managed))
            bytes += allocation.m_bytes;
    return bytes;
}

namespace {

hipError_t allocate_into(void** pointer, size_t bytes, MemoryKind kind, unsigned int flags) {
    if (pointer == nullptr) return hipErrorInvalidValue;
    *pointer = nullptr;
    if (devices().empty()) return hipErrorNoDevice;
    if (bytes == 0) return hipSuccess;
    *pointer = allocations().allocate(bytes, kind, flags);
    return *pointer == nullptr ? hipErrorOutOfMemory : hipSuccess;
}

hipError_t release(void* pointer, MemoryKind kind, MemoryKind other) {
    if (pointer == nullptr) return hipSuccess;
    return allocations().release(pointer, kind, other) ? hipSuccess : hipErrorInvalidValue;
}

// The values are those of the library's version: the enumeration was renumbered in version 6.
hipMemoryType memory_type(MemoryKind kind) {
    const bool old = k_soname_major < 6;
    switch (kind) {
        case MemoryKind::Device:
            return static_cast<hipMemoryType>(old ? 1 : hipMemoryTypeDevice);
        case MemoryKind::Managed:
            return static_cast<hipMemoryType>(old ? 1 : hipMemoryTypeManaged);
        case MemoryKind::Host:
        case MemoryKind::Registered:
            break;
    }
    return static_cast<hipMemoryType>(old ? 0 : hipMemoryTypeHost);
}

}  // namespace
}  // namespace fake_rocm

using namespace fake_rocm;

extern "C" {

hipError_t hipMalloc(void** pointer, size_t bytes) {
    return report(allocate_into(pointer, bytes, MemoryKind::Device, hipDeviceMallocDefault));
}
hipError_t hipExtMallocWithFlags(void** pointer, size_t bytes, unsigned int flags) {
    return report(allocate_into(pointer, bytes, MemoryKind::Device, flags));
}
hipError_t hipMallocAsync(void** pointer, size_t bytes, hipStream_t) {
    return report(allocate_into(pointer, bytes, MemoryKind::Device, hipDeviceMallocDefault));
}
hipError_t hipMallocManaged(void** pointer, size_t bytes, unsigned int flags) {
    if (flags != hipMemAttachGlobal && flags != hipMemAttachHost) return report(hipErrorInvalidValue);
    return report(allocate_into(pointer, bytes, MemoryKind::Managed, flags));
}
hipError_t hipMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    if (pitch == nullptr) return report(hipErrorInvalidValue);
    *pitch = (width + k_alignment - 1) / k_alignment * k_alignment;
    return report(allocate_into(pointer, *pitch * height, MemoryKind::Device, hipDeviceMallocDefault));
}
hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned int flags) {
    return report(allocate_into(pointer, bytes, MemoryKind::Host, flags));
}
hipError_t hipHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
    return report(allocate_into(pointer, bytes, MemoryKind::Host, flags));
}
hipError_t hipMallocHost(void** pointer, size_t bytes) {
    return report(allocate_into(pointer, bytes, MemoryKind::Host, hipHostMallocDefault));
}

hipError_t hipFree(void* pointer) { return report(release(pointer, MemoryKind::Device, MemoryKind::Managed)); }
hipError_t hipFreeAsync(void* pointer, hipStream_t) {
    return report(release(pointer, MemoryKind::Device, MemoryKind::Managed));
}
hipError_t hipHostFree(void* pointer) { return report(release(pointer, MemoryKind::Host, MemoryKind::Host)); }
hipError_t hipFreeHost(void* pointer) { return report(release(pointer, MemoryKind::Host, MemoryKind::Host)); }

hipError_t hipHostRegister(void* pointer, size_t bytes, unsigned int flags) {
    if (pointer == nullptr || bytes == 0) return report(hipErrorInvalidValue);
    return report(allocations().adopt(pointer, bytes, flags) ? hipSuccess : hipErrorHostMemoryAlreadyRegistered);
}
hipError_t hipHostUnregister(void* pointer) {
    if (pointer == nullptr) return report(hipErrorInvalidValue);
    const bool known = allocations().release(pointer, MemoryKind::Registered, MemoryKind::Registered);
    return report(known ? hipSuccess : hipErrorHostMemoryNotRegistered);
}

hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned int) {
    Allocation found;
    if (device == nullptr || host == nullptr || !allocations().find(host, &found)) return report(hipErrorInvalidValue);
    *device = host;
    return hipSuccess;
}

hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
    const Device* device = current_device_or_null();
    if (device == nullptr) return report(hipErrorNoDevice);
    if (total_bytes != nullptr) *total_bytes = device->memory_bytes();
    if (free_bytes != nullptr) *free_bytes = device->memory_bytes() - allocations().bytes_on(current_device());
    return hipSuccess;
}

hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* size, hipDeviceptr_t pointer) {
    Allocation found;
    if (!allocations().find(pointer, &found)) return report(hipErrorNotFound);
    if (base != nullptr) *base = found.m_base;
    if (size != nullptr) *size = found.m_bytes;
    return hipSuccess;
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
    if (attributes == nullptr || pointer == nullptr) return report(hipErrorInvalidValue);
    Allocation found;
    if (!allocations().find(pointer, &found)) {
        // Version 6 answers "unregistered", an answer that version 5 does not have.
        memset(attributes, 0, sizeof(*attributes));
        return report(k_soname_major < 6 ? hipErrorInvalidValue : hipSuccess);
    }
    const bool on_host = found.m_kind != MemoryKind::Device;
    attributes->type = memory_type(found.m_kind);
    attributes->device = found.m_device;
    attributes->devicePointer = const_cast<void*>(pointer);
    attributes->hostPointer = on_host ? const_cast<void*>(pointer) : nullptr;
    attributes->isManaged = found.m_kind == MemoryKind::Managed;
    attributes->allocationFlags = found.m_flags;
    return hipSuccess;
}

}  // extern "C"
