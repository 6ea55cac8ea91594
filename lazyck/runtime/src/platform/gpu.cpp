#include "platform/gpu.h"

#include <dlfcn.h>

#include <cstdint>
#include <vector>

#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/glibc.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr int k_active = 1;      // ...StreamCaptureStatusActive
constexpr int k_implicit = 906;  // asking the default stream would spoil a capture, so there is one

using IsCapturing = int(void* stream, int* status);

// Has the layout of the result of PyTorch's getCurrentCUDAStream: a class of 16 bytes, which is
// returned in two registers. It is passed on unchanged, so it does not matter which member lies in
// which word.
struct TorchStream {
    std::uint64_t words[2];
};

// Looks only in what is loaded already, because a program that captures has loaded it.
void* loaded(const char* name, const char* const* libraries) { return find_symbol(name, libraries, false); }

// Returns PyTorch's current stream of this thread, or the default stream without PyTorch.
void* torch_stream(const GpuRuntime& gpu) {
    for (std::size_t i = 0; gpu.torch_current[i] != nullptr; ++i) {
        void* const current = loaded(gpu.torch_current[i], gpu.torch_libraries);
        void* const stream = loaded(gpu.torch_stream[i], gpu.torch_libraries);
        if (current == nullptr || stream == nullptr) continue;
        try {
            const TorchStream found = reinterpret_cast<TorchStream (*)(signed char)>(current)(-1);
            return reinterpret_cast<void* (*)(const TorchStream*)>(stream)(&found);
        } catch (...) {
            return nullptr;  // there is no device, so nothing is captured
        }
    }
    return nullptr;
}

// A profiler's library is looked up once, when the first compile begins.
using Push = int (*)(const char*);
using Pop = int (*)();

struct Ranges {
    Push push;
    Pop pop;
};

std::vector<Ranges> find_ranges() {
    std::vector<Ranges> found;
    for (const GpuRuntime& gpu : k_gpu_runtimes) {
        // In a privileged program, nothing is loaded that a search path could name.
        void* const push = find_symbol(gpu.range_push, gpu.range_libraries, !is_privileged());
        void* const pop = push == nullptr ? nullptr : find_symbol(gpu.range_pop, gpu.range_libraries, !is_privileged());
        if (pop != nullptr) found.push_back({reinterpret_cast<Push>(push), reinterpret_cast<Pop>(pop)});
    }
    return found;
}

Lasting<std::vector<Ranges>> g_ranges;

}  // namespace

const GpuRuntime* gpu_runtime_of(std::string_view toolchain) {
    for (const GpuRuntime& gpu : k_gpu_runtimes) {
        if (gpu.toolchain == toolchain) return &gpu;
    }
    return nullptr;
}

void* find_symbol(const char* name, const char* const* libraries, bool may_load) {
    if (*name == '\0' || !may_ask_loader()) return nullptr;
    if (void* found = dlsym(RTLD_DEFAULT, name)) return found;
    for (const int flags : {RTLD_LAZY | RTLD_NOLOAD, RTLD_LAZY}) {
        for (const char* const* library = libraries; *library != nullptr; ++library) {
            void* const handle = dlopen(*library, flags);  // stays open, because the function is kept
            if (handle == nullptr) continue;
            if (void* found = dlsym(handle, name)) return found;
        }
        if (!may_load) break;
    }
    return nullptr;
}

std::string capturing_runtime(const std::string& toolchain) {
    const GpuRuntime* const gpu = gpu_runtime_of(toolchain);
    if (gpu == nullptr) return "";
    auto* const is_capturing = reinterpret_cast<IsCapturing*>(loaded(gpu->is_capturing, gpu->capturing_libraries));
    if (is_capturing == nullptr) return "";
    const auto by_thread = static_cast<std::uintptr_t>(gpu->thread_stream);
    for (void* const stream : {torch_stream(*gpu), static_cast<void*>(nullptr), reinterpret_cast<void*>(by_thread)}) {
        int status = 0;
        const int error = is_capturing(stream, &status);
        if ((error == 0 && status == k_active) || error == k_implicit) return gpu->name;
    }
    return "";
}

ProfilerRange::ProfilerRange(const std::string& name) {
    for (const Ranges& each : g_ranges.get(find_ranges)) each.push(name.c_str());
}

ProfilerRange::~ProfilerRange() {
    for (const Ranges& each : g_ranges.get(find_ranges)) each.pop();
}

}  // namespace lazyck::rt
