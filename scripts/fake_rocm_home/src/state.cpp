#include "state.h"

#include <cstdio>
#include <cstdlib>

namespace fake_rocm {
namespace {

constexpr const char* k_default_arch = "gfx942";

thread_local int t_device = 0;
thread_local hipError_t t_last_error = hipSuccess;

std::vector<Device> read_devices() {
    const char* text = getenv("FAKE_ROCM_ARCH");
    if (text == nullptr || *text == '\0') text = k_default_arch;
    std::vector<Device> found;
    if (std::string_view(text) == "none") return found;
    for (const std::string& target : split(text, ',')) {
        const Arch* arch = find_arch(target);
        if (arch == nullptr) {
            fprintf(stderr, "fake_rocm: FAKE_ROCM_ARCH names '%s', which is no known GPU; reporting no device\n",
                    target.c_str());
            return {};
        }
        found.push_back({target, arch});
    }
    return found;
}

}  // namespace

const std::vector<Device>& devices() {
    static const auto* list = new std::vector<Device>(read_devices());
    return *list;
}

int current_device() { return t_device; }
bool is_device(int ordinal) { return ordinal >= 0 && static_cast<size_t>(ordinal) < devices().size(); }
const Device* current_device_or_null() { return is_device(t_device) ? &devices()[t_device] : nullptr; }

hipError_t report(hipError_t error) {
    if (error != hipSuccess) t_last_error = error;
    return error;
}

}  // namespace fake_rocm

using namespace fake_rocm;

extern "C" {

hipError_t hipGetLastError() {
    const hipError_t error = t_last_error;
    t_last_error = hipSuccess;
    return error;
}

hipError_t hipPeekAtLastError() { return t_last_error; }

const char* hipGetErrorName(hipError_t error) {
    switch (error) {
#define FAKE_ROCM_ERROR(name, value, text) \
    case name:                             \
        return #name;
#include <fake_rocm/errors.inc>
#undef FAKE_ROCM_ERROR
    }
    return "hipErrorUnknown";
}

const char* hipGetErrorString(hipError_t error) {
    switch (error) {
#define FAKE_ROCM_ERROR(name, value, text) \
    case name:                             \
        return text;
#include <fake_rocm/errors.inc>
#undef FAKE_ROCM_ERROR
    }
    return "unknown error";
}

hipError_t hipInit(unsigned int flags) {
    if (flags != 0) return report(hipErrorInvalidValue);
    return report(devices().empty() ? hipErrorNoDevice : hipSuccess);
}

hipError_t hipGetDeviceCount(int* count) {
    if (count == nullptr) return report(hipErrorInvalidValue);
    *count = static_cast<int>(devices().size());
    return report(devices().empty() ? hipErrorNoDevice : hipSuccess);
}

hipError_t hipGetDevice(int* device) {
    if (device == nullptr) return report(hipErrorInvalidValue);
    if (devices().empty()) return report(hipErrorNoDevice);
    *device = t_device;
    return hipSuccess;
}

hipError_t hipSetDevice(int device) {
    if (!is_device(device)) return report(devices().empty() ? hipErrorNoDevice : hipErrorInvalidDevice);
    t_device = device;
    return hipSuccess;
}

hipError_t hipDeviceSynchronize() { return report(devices().empty() ? hipErrorNoDevice : hipSuccess); }
hipError_t hipDeviceReset() { return report(devices().empty() ? hipErrorNoDevice : hipSuccess); }

hipError_t hipSetDeviceFlags(unsigned int) { return hipSuccess; }
hipError_t hipGetDeviceFlags(unsigned int* flags) {
    if (flags == nullptr) return report(hipErrorInvalidValue);
    *flags = hipDeviceScheduleAuto;
    return hipSuccess;
}

hipError_t hipRuntimeGetVersion(int* version) {
    if (version == nullptr) return report(hipErrorInvalidValue);
    *version = k_soname_major == HIP_VERSION_MAJOR ? HIP_VERSION : k_soname_major * 10000000 + 200000;
    return hipSuccess;
}
hipError_t hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }

}  // extern "C"
