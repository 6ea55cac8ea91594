#include "registry.h"

#include <dlfcn.h>
#include <elf.h>
#include <hip/hip_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "arch.h"
#include "memory.h"
#include "state.h"

namespace fake_rocm {
namespace {

// clang's host code passes this to __hipRegisterFatBinary.
struct FatBinaryWrapper {
    uint32_t m_magic;
    uint32_t m_version;
    const void* m_binary;
    const void* m_unused;
};
constexpr uint32_t k_wrapper_magic = 0x48495046;  // "HIPF"

// An offload bundle has a magic and a u64 count, and then for each entry a u64 offset, a u64 size,
// the u64 length of the triple, and the triple.
constexpr std::string_view k_bundle_magic = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::string_view k_compressed_magic = "CCOB";
constexpr uint64_t k_most_entries = 4096;
constexpr uint16_t k_amdgpu = 224;  // EM_AMDGPU
constexpr uint64_t k_longest_triple = 4096;

uint64_t read_u64(const char* at) {
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

// Turns "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-" into "gfx90a:xnack-"; returns an empty string for
// the host's entry.
std::string target_of_triple(std::string_view triple) {
    if (triple.compare(0, 3, "hip") != 0) return {};
    const size_t at = triple.find("gfx");
    if (at != std::string_view::npos) return std::string(triple.substr(at));
    return triple.find("spirv") != std::string_view::npos ? "amdgcnspirv" : "";
}

// Returns the shared library for this machine in an offload bundle; empty if there is none.
std::string_view library_in(const char* image) {
    if (memcmp(image, k_bundle_magic.data(), k_bundle_magic.size()) != 0) return {};
    const char* at = image + k_bundle_magic.size();
    const uint64_t count = read_u64(at);
    at += sizeof(uint64_t);
    for (uint64_t i = 0; i < count && count <= k_most_entries; ++i) {
        const std::string_view code(image + read_u64(at), read_u64(at + 8));
        Elf64_Ehdr head;
        if (code.size() > sizeof(head)) {
            memcpy(&head, code.data(), sizeof(head));
            if (memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_machine != k_amdgpu) return code;
        }
        at += 24 + read_u64(at + 16);
    }
    return {};
}

// Loads a library from memory. Returns nullptr and prints the reason if it cannot be loaded.
void* load(std::string_view library) {
    const int fd = memfd_create("fake_rocm_code", MFD_CLOEXEC);
    if (fd < 0 || write(fd, library.data(), library.size()) != static_cast<ssize_t>(library.size())) {
        fprintf(stderr, "fake_rocm: cannot write an image to memory: %m\n");
        if (fd >= 0) close(fd);
        return nullptr;
    }
    // Each library gets another name: the loader takes a known name for the library that it has
    // loaded by it.
    static std::atomic<unsigned> count{0};
    const std::string path = "/proc/self/fd" + std::string(1 + count++ % 4000, '/') + std::to_string(fd);
    void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) fprintf(stderr, "fake_rocm: cannot load an image: %s\n", dlerror());
    close(fd);
    return loaded;
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
    Module module;
    if (wrapper == nullptr || wrapper->m_magic != k_wrapper_magic || wrapper->m_binary == nullptr ||
        !read_code_targets(wrapper->m_binary, &module.m_targets))
        module = {};  // unknown code: its launches are refused
    else
        module.m_library = library_in(static_cast<const char*>(wrapper->m_binary));
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_modules[opaque] = module;
    return opaque;
}

void Registry::remove_module(const void* module) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_modules.erase(module);
    for (auto* const all : {&m_kernels, &m_variables})
        for (auto it = all->begin(); it != all->end();)
            it = it->second.m_module == module ? all->erase(it) : std::next(it);
}

void Registry::add_variable(const void* module, const void* handle, const char* name) {
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_variables[handle] = {name, module};
}

void* Registry::find_code(const void* handle) { return find_in_image(m_kernels, handle, ".kd"); }
void* Registry::find_variable(const void* handle) { return find_in_image(m_variables, handle, ".var"); }

void* Registry::find_in_image(const std::map<const void*, Registered>& all, const void* handle, const char* suffix) {
    Registered registered;
    Module module;
    {
        const std::lock_guard<std::mutex> lock(m_mutex);
        const auto found = all.find(handle);
        if (found == all.end()) return const_cast<void*>(handle);
        registered = found->second;
        module = m_modules[registered.m_module];
    }
    if (module.m_library.empty()) return const_cast<void*>(handle);
    void* const loaded = module.m_loaded != nullptr ? module.m_loaded : loaded_once(registered.m_module);
    return loaded == nullptr ? nullptr : dlsym(loaded, (registered.m_name + suffix).c_str());
}

// This does not load under m_mutex: a library that another thread loads registers its modules while
// that thread holds the loader's lock.
void* Registry::loaded_once(const void* key) {
    const std::lock_guard<std::mutex> loading(m_loading);
    Module module;
    {
        const std::lock_guard<std::mutex> lock(m_mutex);
        module = m_modules[key];
    }
    if (module.m_loaded != nullptr || module.m_library.empty()) return module.m_loaded;
    void* const loaded = load(module.m_library);
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_modules[key].m_loaded = loaded;
    return loaded;
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
    *targets = m_modules[it->second.m_module].m_targets;
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

// With code of the real compiler nothing runs: the host's variable is the variable.
void __hipRegisterVar(void** module, void* handle, char*, char* device_name, int, size_t, int, int) {
    registry().add_variable(module, handle, device_name);
}

hipError_t hipGetFuncBySymbol(hipFunction_t* function, const void* handle) {
    if (function == nullptr || handle == nullptr) return report(hipErrorInvalidValue);
    *function = static_cast<hipFunction_t>(registry().find_code(handle));
    return *function == nullptr ? report(hipErrorInvalidDeviceFunction) : hipSuccess;
}
void __hipRegisterManagedVar(void**, void** pointer, void* initial, const char*, size_t bytes, unsigned int) {
    *pointer = allocations().allocate(bytes, MemoryKind::Managed, hipMemAttachGlobal);
    if (*pointer != nullptr && initial != nullptr) memcpy(*pointer, initial, bytes);
}
void __hipRegisterSurface(void**, void*, char*, char*, int, int) {}
void __hipRegisterTexture(void**, void*, char*, char*, int, int, int) {}

}  // extern "C"
