// What the calls share: the devices, the calling thread's device and last error, and the variant
// that was built.
#pragma once

#include <hip/hip_runtime_api.h>

#include <string>
#include <vector>

#include "arch.h"

namespace fake_rocm {

struct Device {
    std::string m_target;  // as in FAKE_ROCM_ARCH
    const Arch* m_arch;

    size_t memory_bytes() const { return m_arch->m_memory_gib << 30; }
};

// Returns one device per name in FAKE_ROCM_ARCH (comma-separated; "none" for a machine without a
// GPU), which is read once.
const std::vector<Device>& devices();

int current_device();
const Device* current_device_or_null();
bool is_device(int ordinal);

// Keeps the error for hipGetLastError and returns it. Every API function returns through this.
hipError_t report(hipError_t error);

// The major version in the soname of this build of the library: 5, 6 or 7. Some enumerations
// differ.
extern const int k_soname_major;

// Returns the only object of a type, which is never destroyed, since libraries unregister at exit.
template <class T>
T& immortal() {
    static T* instance = new T;
    return *instance;
}

}  // namespace fake_rocm

// Defines hip..._spt, the call for the per-thread default stream, which runs at once like any
// other. The assembler does it, because some of these names are overloaded in C++.
#define FAKE_ROCM_SPT(name) \
    __asm__(".globl " #name "_spt\n.type " #name "_spt, @function\n.set " #name "_spt, " #name "\n")
