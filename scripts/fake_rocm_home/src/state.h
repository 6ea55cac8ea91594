// What the calls share: the devices there are, the calling thread's device and last error, and the variant built.
#pragma once

#include <hip/hip_runtime_api.h>

#include <string>
#include <vector>

#include "arch.h"

namespace fake_rocm {

struct Device {
    std::string m_target;  // as FAKE_ROCM_ARCH gave it
    const Arch* m_arch;

    size_t memory_bytes() const { return m_arch->m_memory_gib << 30; }
};

// One per name in FAKE_ROCM_ARCH (comma-separated; "none" for a machine without a GPU). Read once.
const std::vector<Device>& devices();

int current_device();
const Device* current_device_or_null();
bool is_device(int ordinal);

// Keeps the error for hipGetLastError and passes it on: every API function returns through this.
hipError_t report(hipError_t error);

// 5, 6 or 7: the major version in the soname of this build of the library. Some enumerations differ.
extern const int k_soname_major;

// Hands out what `make` built: static data that is never destroyed, since libraries unregister at exit.
template <class T>
T& immortal() {
    static T* instance = new T;
    return *instance;
}

}  // namespace fake_rocm

// hip..._spt: the same call for the per-thread default stream, which runs at once like every other. By the assembler,
// because some of these names are overloaded in C++.
#define FAKE_ROCM_SPT(name) \
    __asm__(".globl " #name "_spt\n.type " #name "_spt, @function\n.set " #name "_spt, " #name "\n")
