// The functions are looked up by name, in the scope of the lazy library first. The runtime links
// no GPU runtime, and a process may have several copies, of which the library's own is the
// one that will launch.
#include "bundle/arch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "base/failure.h"
#include "lazyck_abi.h"
#include "platform/config.h"
#include "platform/elf_view.h"
#include "platform/gpu.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_properties_room = 8192;  // more than any device's properties take
constexpr std::size_t k_name_size = 256;         // size of their first member
constexpr std::size_t k_longest_arch = 255;

std::string arch_in(const std::string& properties, std::size_t at, const char* mark) {
    const std::string text(properties.data() + at, strnlen(properties.data() + at, k_longest_arch));
    return text.rfind(mark, 0) == 0 ? text.substr(0, text.find(':')) : "";
}

using GetDevice = int(int*);
using GetProperties = int(void*, int);
using GetAttribute = int(int*, int, int);

template <auto Name>
std::atomic<void*> g_functions[std::size(k_gpu_runtimes)];
// The arch of each device is remembered, because reading all properties of one can cost a
// millisecond.
Lasting<std::map<int, std::string>> g_archs[std::size(k_gpu_runtimes)];

// Returns the function that a row has by this name, or null while its library is not loaded. The
// address is kept once it is found. This takes no lock of ours, because a thread that holds the
// dynamic loader's lock may be waiting for us.
template <typename F, auto Name>
F* function(const GpuRuntime& gpu, const char* const* libraries) {
    std::atomic<void*>& address = g_functions<Name>[&gpu - k_gpu_runtimes];
    void* known = address.load(std::memory_order_acquire);
    if (known == nullptr) {
        known = find_symbol(gpu.*Name, libraries, true);
        address.store(known, std::memory_order_release);
    }
    return reinterpret_cast<F*>(known);
}

template <typename Ask>
std::string remembered_arch(const GpuRuntime& gpu, int device, Ask ask) {
    auto& archs = g_archs[&gpu - k_gpu_runtimes].get([] { return std::map<int, std::string>(); });
    {
        const std::lock_guard<std::mutex> guard(lock_of(Shared::archs_of_devices));
        const auto known = archs.find(device);
        if (known != archs.end()) return known->second;
    }
    const std::string arch = ask(device);
    const std::lock_guard<std::mutex> guard(lock_of(Shared::archs_of_devices));
    if (!arch.empty()) archs[device] = arch;
    return arch;
}

// Returns the name that the properties of `device` give to its arch.
std::string named_arch(const GpuRuntime& gpu, int device) {
    const auto offset = static_cast<std::size_t>(gpu.arch_at);
    std::string properties(k_properties_room, '\0');
    const auto get = function<GetProperties, &GpuRuntime::properties>(gpu, gpu.libraries);
    if (get != nullptr) {
        if (get(properties.data(), device) != 0) return "";
        const std::string arch = arch_in(properties, offset, gpu.arch_mark);
        if (!arch.empty()) return arch;
    } else {
        const auto get_old = function<GetProperties, &GpuRuntime::older_properties>(gpu, gpu.libraries);
        if (get_old == nullptr || get_old(properties.data(), device) != 0) return "";
    }
    const std::size_t at = properties.find(gpu.arch_mark, k_name_size);
    return at == std::string::npos ? "" : arch_in(properties, at, gpu.arch_mark);
}

std::string capability(const GpuRuntime& gpu, GetAttribute* attribute, int device) {
    int major = 0, minor = 0;
    if (attribute(&major, gpu.major, device) != 0 || attribute(&minor, gpu.minor, device) != 0) return "";
    return std::to_string(major) + std::to_string(minor);
}

// Returns the number of devices that `count` tells, or 0 if it tells none.
int device_count(GetDevice* count) {
    int devices = 0;
    return count != nullptr && count(&devices) == 0 ? devices : 0;
}

// Returns the archs of the current device and of those other devices that `is_built` says the build
// has code for, or nothing if the current device has none. A process loads a blob once, for all of
// its devices, as it loads an ahead-of-time library. On a device that the build has no code for,
// that library fails, too.
template <typename ArchOf, typename IsBuilt>
Strings archs_of_devices(int current, int count, ArchOf arch_of, IsBuilt is_built) {
    std::set<std::string> archs = {arch_of(current)};
    if (archs.count("") != 0) return {};
    for (int device = 0; device < count; ++device) {
        const std::string arch = device == current ? "" : arch_of(device);
        if (!arch.empty() && is_built(arch)) archs.insert(arch);
    }
    return {archs.begin(), archs.end()};
}

// Returns the archs of these devices, which have names. HIP looks for the code of
// one device after the other, and stops at the first device without any. So the devices before the
// current one count even if it is not known how many there are.
Strings ask_by_name(const GpuRuntime& gpu, int current, int count, const Strings& built) {
    const auto arch_of = [&](int each) {
        return remembered_arch(gpu, each, [&](int device) { return named_arch(gpu, device); });
    };
    const auto is_built = [&](const std::string& arch) {
        return std::find(built.begin(), built.end(), arch) != built.end();
    };
    return archs_of_devices(current, std::max(count, current + 1), arch_of, is_built);
}

// What a name such as `90a`, `100f` or `80-virtual` says: a number, a letter if there is one, and
// whether it stands for PTX alone. The number is 0 for a name of another form.
struct Capability {
    int number = 0;
    char variant = 0;
    bool is_virtual = false;
};

Capability capability_of(const std::string& name) {
    const std::size_t end = std::min(name.find(LAZYCK_ARCH_VIRTUAL), name.size());
    Capability found;
    found.is_virtual = end < name.size();
    std::size_t i = 0;
    while (i < end && i < 4 && name[i] >= '0' && name[i] <= '9') found.number = found.number * 10 + name[i++] - '0';
    if (i + 1 == end) found.variant = name[i];
    return i == end || found.variant != 0 ? found : Capability();
}

// Returns whether both numbers are of one family of devices. 10.1 (Thor) has the major number of
// 10.0 but is of another family.
bool is_kin(int a, int b) { return a / 10 == b / 10 && (a == 101) == (b == 101); }

// Returns whether a device of the number `device` can run what was built for `b`, if only after the
// driver has compiled PTX.
bool can_run(int device, const Capability& b) {
    if (b.number == 0 || b.number > device) return false;
    if (b.variant == 'a') return b.number == device;
    return is_kin(b.number, device) || (b.is_virtual && b.variant == 0);
}

// Returns those of `built` that a device can run. Those that CUDA prefers come first: machine code
// for the very device, then for its family or an earlier device of that, then the newest PTX.
std::vector<Capability> images_for(int device, const Strings& built) {
    std::vector<Capability> found;
    for (const std::string& name : built) {
        const Capability b = capability_of(name);
        if (can_run(device, b)) found.push_back(b);
    }
    const auto rank = [](const Capability& c) {
        return std::make_tuple(c.is_virtual, -c.number, c.variant == 'a' ? 0 : c.variant == 0 ? 1 : 2);
    };
    std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    return found;
}

// Returns the arch by which a source is compiled for a device so that it becomes the code that the
// CUDA runtime would take out of the source's fat binary, which was `built` for these archs. An
// arch that is `wished` for comes before code for other devices. If the fat binary has nothing for
// the device, the arch is the device's own, and of the kind that the source needs.
std::string arch_for(const std::string& device_name, const Strings& built, const Strings& wished) {
    const Capability device = capability_of(device_name);
    if (device.number == 0 || device.variant != 0) return device_name;
    const auto named = [](const Capability& c) {
        return std::to_string(c.number) + (c.variant != 0 ? std::string(1, c.variant) : "");
    };
    const std::vector<Capability> images = images_for(device.number, built), asked = images_for(device.number, wished);
    for (const std::vector<Capability>* each : {&images, &asked}) {
        if (!each->empty() && each->front().number == device.number) return named(each->front());
    }
    if (!images.empty()) {
        return images[0].is_virtual ? device_name + LAZYCK_ARCH_FROM_PTX + named(images[0]) : named(images[0]);
    }
    const bool is_specific = std::any_of(built.begin(), built.end(), [&](const std::string& name) {
        const Capability b = capability_of(name);
        return b.variant == 'a' && is_kin(b.number, device.number);
    });
    return is_specific ? device_name + "a" : device_name;
}

// Returns the capabilities of these devices, which `attribute` tells. `device_of` returns the
// device of an ordinal.
template <typename DeviceOf>
Strings ask_by_capability(const GpuRuntime& gpu, GetAttribute* attribute, int current, int count, DeviceOf device_of,
                          const Strings& built) {
    const auto ask = [&](int ordinal) {
        return remembered_arch(gpu, device_of(ordinal), [&](int d) { return capability(gpu, attribute, d); });
    };
    const auto is_built = [&](const std::string& arch) {
        return !images_for(capability_of(arch).number, built).empty();
    };
    return archs_of_devices(current, count, ask, is_built);
}

// Asks the driver, for a library whose GPU runtime is linked in and therefore cannot be found by
// name.
Strings ask_driver(const GpuRuntime& gpu, const Strings& built) {
    const auto init = function<int(unsigned), &GpuRuntime::driver_init>(gpu, gpu.driver_libraries);
    const auto current = function<GetDevice, &GpuRuntime::driver_device>(gpu, gpu.driver_libraries);
    const auto get = function<int(int*, int), &GpuRuntime::driver_get>(gpu, gpu.driver_libraries);
    const auto attribute = function<GetAttribute, &GpuRuntime::driver_attribute>(gpu, gpu.driver_libraries);
    if (init == nullptr || current == nullptr || get == nullptr || attribute == nullptr || init(0) != 0) return {};
    int device = 0;
    if (current(&device) != 0 && get(&device, 0) != 0) return {};
    // A device is a number that is handed out for an ordinal, and has been equal to it so far.
    const auto device_of = [&](int ordinal) {
        int found = 0;
        return ordinal == device || get(&found, ordinal) != 0 ? ordinal : found;
    };
    const int count = device_count(function<GetDevice, &GpuRuntime::driver_count>(gpu, gpu.driver_libraries));
    return ask_by_capability(gpu, attribute, device, count, device_of, built);
}

Strings ask(const GpuRuntime& gpu, const Strings& built) {
    int device = 0;
    const auto get_device = function<GetDevice, &GpuRuntime::device>(gpu, gpu.libraries);
    const auto attribute = function<GetAttribute, &GpuRuntime::attribute>(gpu, gpu.libraries);
    const bool has_names = *gpu.attribute == '\0';
    if (get_device != nullptr && (has_names || attribute != nullptr) && get_device(&device) == 0) {
        const int count = device_count(function<GetDevice, &GpuRuntime::count>(gpu, gpu.libraries));
        const auto same = [](int ordinal) { return ordinal; };
        const Strings archs = has_names ? ask_by_name(gpu, device, count, built)
                                        : ask_by_capability(gpu, attribute, device, count, same, built);
        if (!archs.empty()) return archs;
    }
    return ask_driver(gpu, built);
}

}  // namespace

std::string advice_on_arch(const std::string& message, const Strings& archs) {
    const auto has = [&](const char* text) { return message.find(text) != std::string::npos; };
    if (archs.empty() || (!has("Unsupported gpu architecture") && !has("not defined for option 'gpu-"))) return "";
    Strings devices;
    for (const std::string& arch : archs) devices.push_back(arch.substr(0, arch.find(LAZYCK_ARCH_FROM_PTX)));
    return "this nvcc does not know the arch " + join(devices, ", ") +
           ": use a newer CUDA toolkit, or set " LAZYCK_ENV_ARCHS
           " to an older arch of the same major number, whose code this GPU can run";
}

Strings archs_for(const ManifestView& manifest, std::uint32_t recipe, const Strings& asked, bool may_ask) {
    if (!manifest.has_arch_flags(recipe)) return {machine_name(manifest.machine())};
    const Strings wished = parse_archs(join(manifest.archs(), ";"), "archs of the build");
    const Strings own = parse_archs(join(manifest.recipe_archs(recipe), ";"), "archs of the sources");
    const Strings& built = own.empty() ? wished : own;
    Strings devices = asked;
    if (devices.empty() && may_ask) {
        const std::string toolchain = manifest.recipe_toolchain(recipe);
        const GpuRuntime* const gpu = gpu_runtime_of(toolchain);
        if (gpu == nullptr) fail("lazyck: no GPU runtime is known for the toolchain '" + visible(toolchain) + "'");
        Strings every = built;
        every.insert(every.end(), wished.begin(), wished.end());
        devices = ask(*gpu, every);
    }
    if (devices.empty()) devices = wished;
    std::set<std::string> archs;
    for (const std::string& device : devices) archs.insert(arch_for(device, built, wished));
    // Of PTX alone, code is made for the first devices that can run it.
    for (const bool is_virtual : {false, true}) {
        for (const std::string& name : archs.empty() ? own : Strings()) {
            const std::size_t end = name.find(LAZYCK_ARCH_VIRTUAL);
            if ((end < name.size()) == is_virtual) archs.insert(name.substr(0, end));
        }
    }
    if (archs.empty()) {
        fail("lazyck: no GPU answers, and the build of " + std::string(manifest.library()) +
             " names no archs; set " LAZYCK_ENV_ARCHS ", such as " LAZYCK_ENV_ARCHS "=gfx942 or 90");
    }
    return {archs.begin(), archs.end()};
}

}  // namespace lazyck::rt
