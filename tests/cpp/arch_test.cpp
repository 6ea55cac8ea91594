#include "bundle/arch.h"

#include <cstring>
#include <functional>

#include "bundle/manifest_view.h"
#include "platform/elf_view.h"
#include "unit_support.h"

namespace {

int g_current_device = 0;
int g_device_count = 0;
bool g_are_swapped = false;  // the driver's device 0 is the ordinal 1
bool g_has_driver = false;

// The capability of each device, with the attributes that CUDA numbers.
int attribute_of_two(int* value, int attribute, int device) {
    const int capability = device == 0 ? 80 : device == 1 ? 90 : device == 2 ? 75 : -1;
    if (capability < 0 || (attribute != 75 && attribute != 76)) return 1;
    *value = attribute == 75 ? capability / 10 : capability % 10;
    return 0;
}

}  // namespace

// The runtime looks these up by their names, as those of the CUDA runtime and of its driver.
extern "C" {
int cudaGetDevice(int* device) {
    *device = g_current_device;
    return g_current_device < 0 ? 1 : 0;
}
int cudaGetDeviceCount(int* count) {
    *count = g_device_count;
    return g_device_count < 0 ? 1 : 0;
}
int cudaDeviceGetAttribute(int* value, int attribute, int device) { return attribute_of_two(value, attribute, device); }
int cuInit(unsigned) { return g_has_driver ? 0 : 1; }
int cuCtxGetDevice(int* device) { return cudaGetDevice(device); }
int cuDeviceGet(int* device, int ordinal) {
    *device = g_are_swapped ? 1 - ordinal : ordinal;
    return 0;
}
int hipGetDevice(int* device) { return cudaGetDevice(device); }
int hipGetDeviceCount(int* count) { return cudaGetDeviceCount(count); }
int hipGetDevicePropertiesR0600(void* properties, int device) {
    if (device > 1) return 101;
    std::strcpy(static_cast<char*>(properties) + 1160, device == 0 ? "gfx942:sramecc+:xnack-" : "gfx90a:xnack-");
    return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) { return attribute_of_two(value, attribute, device); }
int cuDeviceGetCount(int* count) { return cudaGetDeviceCount(count); }
}

namespace lazyck::rt {

using unit::has;
using unit::made_file;
using unit::message_of;

TEST_CASE("code is for the device that is current, not for the first one") {
    const auto arch_of = [](int device) { return std::string(device == 0 ? "80" : device == 1 ? "90" : ""); };
    const auto none = [](const std::string&) { return false; };
    const auto all = [](const std::string&) { return true; };
    CHECK(archs_of_devices(1, 0, arch_of, none) == Strings{"90"});
    CHECK(archs_of_devices(0, 0, arch_of, none) == Strings{"80"});
    CHECK(archs_of_devices(1, 2, arch_of, none) == Strings{"90"});
    CHECK(archs_of_devices(1, 2, arch_of, all) == Strings{"80", "90"});
    CHECK(archs_of_devices(1, 3, arch_of, all) == Strings{"80", "90"});
    CHECK(archs_of_devices(2, 2, arch_of, all) == Strings{});
    CHECK(archs_of_devices(0, 1, arch_of, all) == Strings{"80"});
    CHECK(archs_of_devices(0, 2, [](int) { return std::string("80"); }, all) == Strings{"80"});
}

TEST_CASE("CUDA's devices are known by their capabilities") {
    const auto same = [](int ordinal) { return ordinal; };
    CHECK(ask_by_capability(*gpu_runtime_of("cuda"), attribute_of_two, 1, 1, same, {"80", "90a"}) ==
          Strings{"80", "90"});
    CHECK(ask_by_capability(*gpu_runtime_of("cuda"), attribute_of_two, 1, 0, same, {"80", "90a"}) == Strings{"90"});
    CHECK(ask_by_capability(*gpu_runtime_of("cuda"), attribute_of_two, 2, 0, same, {"80"}) == Strings{"75"});
    CHECK(ask_by_capability(*gpu_runtime_of("cuda"), attribute_of_two, 5, 0, same, {"80"}) == Strings{});
    CHECK(ask_by_capability(*gpu_runtime_of("cuda"), attribute_of_two, 1, 0, [](int ordinal) { return ordinal - 1; },
                            {"80"}) == Strings{"80"});
}

TEST_CASE("CUDA's current device decides, and others count if CUDA tells how many there are") {
    g_current_device = 1;
    CHECK(ask(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{"90"});
    g_device_count = 2;
    CHECK(ask(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{"80", "90"});
    CHECK(ask(*gpu_runtime_of("cuda"), {"90"}) == Strings{"90"});
    g_device_count = -1;
    CHECK(ask(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{"90"});
    g_current_device = 0;
    CHECK(ask(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{"80"});
    const std::string bytes = made_file("manifest");
    const ManifestView view(bytes.data(), bytes.size(), "here");
    CHECK(archs_for(view, 1, {}, true) == Strings{"80"});
    g_current_device = -1;
    CHECK(archs_for(view, 1, {}, true) == Strings{"80", "90"});
    g_device_count = g_current_device = 0;
}

TEST_CASE("the driver is asked where there is no CUDA runtime, and without a context it is about device 0") {
    g_current_device = 1;
    CHECK(ask_driver(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{});
    g_has_driver = true;
    CHECK(ask_driver(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{"90"});
    g_device_count = 2;
    CHECK(ask_driver(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{"80", "90"});
    CHECK(ask_driver(*gpu_runtime_of("cuda"), {"90"}) == Strings{"90"});
    g_device_count = 0;
    g_current_device = -1;
    CHECK(ask_driver(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{"80"});
    CHECK(ask(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{"80"});
    g_current_device = 1;
    g_device_count = 2;
    g_are_swapped = true;
    CHECK(ask_driver(*gpu_runtime_of("cuda"), {"80", "90"}) == Strings{"90"});
    g_are_swapped = false;
    g_has_driver = false;
    g_current_device = g_device_count = 0;
}

TEST_CASE("HIP's current device decides, and those before it count, too") {
    const Strings both = {"gfx90a", "gfx942"};
    g_current_device = 0;
    CHECK(ask(*gpu_runtime_of("rocm"), both) == Strings{"gfx942"});
    g_device_count = 2;
    CHECK(ask(*gpu_runtime_of("rocm"), both) == both);
    CHECK(ask(*gpu_runtime_of("rocm"), {"gfx90a"}) == both);
    g_device_count = -1;
    g_current_device = 1;
    CHECK(ask(*gpu_runtime_of("rocm"), both) == both);
    CHECK(ask(*gpu_runtime_of("rocm"), {"gfx90a"}) == Strings{"gfx90a"});
    g_current_device = 2;
    CHECK(ask(*gpu_runtime_of("rocm"), {}) == Strings{});
    g_current_device = -1;
    CHECK(ask(*gpu_runtime_of("rocm"), both) == Strings{});
    g_current_device = g_device_count = 0;
}

TEST_CASE("the name of a capability is a number with at most one letter") {
    const auto read = [](const char* name) {
        const Capability found = capability_of(name);
        return std::to_string(found.number) + (found.variant != 0 ? std::string(1, found.variant) : "");
    };
    CHECK(read("90") == "90");
    CHECK(read("90a") == "90a");
    CHECK(read("100f") == "100f");
    CHECK(read("1234") == "1234");
    CHECK(read("80-virtual") == "80");
    CHECK(read("90-ptx80") == "0");
    CHECK(read("") == "0");
    for (const char* bad : {"90ab", "123456", "gfx942", "/0x", ":0x"}) CHECK(read(bad) == "0");
}

TEST_CASE("a device gets what CUDA takes out of a fat binary") {
    const auto chosen = [](const char* device, const Strings& built) { return arch_for(device, built, {}); };
    CHECK(chosen("90", {"90a"}) == "90a");
    CHECK(chosen("90", {"80", "90"}) == "90");
    CHECK(chosen("90", {"90", "90a"}) == "90a");
    CHECK(chosen("86", {"75", "80", "89"}) == "80");
    CHECK(chosen("100", {"100f"}) == "100f");
    CHECK(chosen("103", {"100f"}) == "100f");
    CHECK(chosen("103", {"100f", "103f"}) == "103f");
    CHECK(chosen("103", {"100f", "103"}) == "103");
    CHECK(chosen("100", {"103f"}) == "100");
    CHECK(chosen("101", {"100f"}) == "101");
    CHECK(chosen("100", {"101f"}) == "100");
    CHECK(chosen("103", {"100a"}) == "103a");
    CHECK(chosen("103", {"100a", "100f"}) == "100f");
    CHECK(chosen("110", {"100a"}) == "110");
    CHECK(chosen("gfx942", {"90a"}) == "gfx942");
    CHECK(chosen("90a", {"90"}) == "90a");
}

TEST_CASE("PTX is taken where no machine code fits") {
    const Strings built = {"80", "75-virtual", "80-virtual", "90a-virtual", "100f-virtual"};
    CHECK(arch_for("86", built, {}) == "80");
    CHECK(arch_for("90", built, {}) == "90a");
    CHECK(arch_for("103", built, {}) == "103-ptx100f");
    CHECK(arch_for("120", built, {}) == "120-ptx80");
    CHECK(arch_for("70", built, {}) == "70");
    CHECK(arch_for("89", {"80", "86-virtual"}, {}) == "80");
    CHECK(arch_for("90-ptx80", built, {}) == "90-ptx80");
}

TEST_CASE("what the build was asked for comes before code for other devices") {
    CHECK(arch_for("90", {"80", "80-virtual"}, {"90"}) == "90");
    CHECK(arch_for("90", {"90a"}, {"90"}) == "90a");
    CHECK(arch_for("86", {"80"}, {"86"}) == "86");
    CHECK(arch_for("86", {"80"}, {"90"}) == "80");
}

TEST_CASE("what HIP says of a device ends at the colon") {
    const auto read = [](std::string text, std::size_t at) {
        text.resize(text.size() + 300);
        return arch_in({text.begin(), text.end()}, at, "gfx");
    };
    CHECK(read("gfx942:sramecc+:xnack-", 0) == "gfx942");
    CHECK(read("xxgfx90a", 2) == "gfx90a");
    CHECK(read("xxgfx90a", 1) == "");
    CHECK(read("", 0) == "");
}

TEST_CASE("archs are the library's machine, the user's, the device's or the build's") {
    const std::string bytes = made_file("manifest");
    const ManifestView view(bytes.data(), bytes.size(), "here");
    CHECK(archs_for(view, 0, {"90"}, true) == Strings{"x86_64"});
    CHECK(archs_for(view, 1, {"75"}, true) == Strings{"75"});
    CHECK(archs_for(view, 1, {}, false) == Strings{"80", "90"});
}

TEST_CASE("a complaint about an arch gets advice") {
    CHECK(has(advice_on_arch("nvcc fatal: Unsupported gpu architecture 'compute_999'", {"999"}), "the arch 999"));
    CHECK(has(advice_on_arch("Value 'sm_1' is not defined for option 'gpu-architecture'", {"1"}), "the arch 1"));
    CHECK(advice_on_arch("Unsupported gpu architecture", {}) == "");
    CHECK(advice_on_arch("error: oops", {"90"}) == "");
}

TEST_CASE("machines have names and numbers") {
    CHECK(machine_name(machine_of("x86_64")) == "x86_64");
    CHECK(machine_name(machine_of("aarch64")) == "aarch64");
    CHECK(machine_of("loongarch64") == 258);
    CHECK(machine_of("vax") == 0);
    CHECK(machine_name(8) == "ELF machine 8");
    CHECK(machine_name(own_machine()) != "");
}

}  // namespace lazyck::rt
