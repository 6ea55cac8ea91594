#include "registry.h"

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "arch.h"
#include "memory.h"
#include "state.h"

namespace fake_rocm {
namespace {

// What clang's host code hands to __hipRegisterFatBinary.
struct FatBinaryWrapper {
    uint32_t m_magic;
    uint32_t m_version;
    const void* m_binary;
    const void* m_unused;
};
constexpr uint32_t k_wrapper_magic = 0x48495046;  // "HIPF"

// Offload bundle: magic, u64 count, then per entry u64 offset, u64 size, u64 length of the triple, triple.
constexpr std::string_view k_bundle_magic = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::string_view k_compressed_magic = "CCOB";
constexpr uint64_t k_most_entries = 4096;
constexpr uint64_t k_longest_triple = 4096;

uint64_t read_u64(const char* at) {
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

// "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-" -> "gfx90a:xnack-"; empty for the host's entry.
std::string target_of_triple(std::string_view triple) {
    if (triple.compare(0, 3, "hip") != 0) return {};
    const size_t at = triple.find("gfx");
    if (at != std::string_view::npos) return std::string(triple.substr(at));
    return triple.find("spirv") != std::string_view::npos ? "amdgcnspirv" : "";
}

}  // namespace

bool CodeTargets::holds(const std::string& device) const {
    if (m_any) return true;
    for (const std::string& target : m_targets)
        if (runs_on(target, device)) return true;
    return false;
}

bool read_code_targets(const void* image, CodeTargets* targets) {
    const char* at = static_cast<const char*>(image);
    if (memcmp(at, k_compressed_magic.data(), k_compressed_magic.size()) == 0) {
        targets->m_any = true;
        return true;
    }
    if (memcmp(at, k_bundle_magic.data(), k_bundle_magic.size()) != 0) return false;
    at += k_bundle_magic.size();
    const uint64_t count = read_u64(at);
    at += sizeof(uint64_t);
    if (count > k_most_entries) return false;
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t code_bytes = read_u64(at + 8);
        const uint64_t length = read_u64(at + 16);
        if (length > k_longest_triple) return false;
        const std::string target = target_of_triple({at + 24, length});
        if (!target.empty() && code_bytes > 0) targets->m_targets.push_back(target);
        at += 24 + length;
    }
    return true;
}

Registry& registry() { return immortal<Registry>(); }

const void* Registry::add_module(const void* opaque) {
    const auto* wrapper = static_cast<const FatBinaryWrapper*>(opaque);
    CodeTargets targets;
    if (wrapper == nullptr || wrapper->m_magic != k_wrapper_magic || wrapper->m_binary == nullptr ||
        !read_code_targets(wrapper->m_binary, &targets))
        targets = {};  // no known code: its launches are refused
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_modules[opaque] = targets;
    return opaque;
}

void Registry::remove_module(const void* module) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_modules.erase(module);
    for (auto it = m_kernels.begin(); it != m_kernels.end();)
        it = it->second.m_module == module ? m_kernels.erase(it) : std::next(it);
}

void Registry::add_kernel(const void* module, const void* host_function, const char* name) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_kernels[host_function] = {name, module};
}

bool Registry::find_kernel(const void* host_function, std::string* name, CodeTargets* targets) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    const auto it = m_kernels.find(host_function);
    if (it == m_kernels.end()) return false;
    *name = it->second.m_name;
    *targets = m_modules[it->second.m_module];
    return true;
}

}  // namespace fake_rocm

using namespace fake_rocm;

extern "C" {

void** __hipRegisterFatBinary(const void* wrapper) {
    return static_cast<void**>(const_cast<void*>(registry().add_module(wrapper)));
}
void __hipUnregisterFatBinary(void** module) { registry().remove_module(module); }

void __hipRegisterFunction(void** module, const void* host_function, char*, const char* device_name, unsigned int,
                           void*, void*, void*, void*, int*) {
    registry().add_kernel(module, host_function, device_name);
}

// Nothing on a device holds a second copy, so the host's variable is the variable.
void __hipRegisterVar(void**, void*, char*, char*, int, size_t, int, int) {}
void __hipRegisterManagedVar(void**, void** pointer, void* initial, const char*, size_t bytes, unsigned int) {
    *pointer = allocations().allocate(bytes, MemoryKind::Managed, hipMemAttachGlobal);
    if (*pointer != nullptr && initial != nullptr) memcpy(*pointer, initial, bytes);
}
void __hipRegisterSurface(void**, void*, char*, char*, int, int) {}
void __hipRegisterTexture(void**, void*, char*, char*, int, int, int) {}

}  // extern "C"
