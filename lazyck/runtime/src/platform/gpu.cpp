#include "platform/gpu.h"

#include <dlfcn.h>

#include <cstdint>
#include <vector>

#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr int k_active = 1;      // (cu|hip)StreamCaptureStatusActive
constexpr int k_implicit = 906;  // asking the default stream would spoil a capture, so there is one

using IsCapturing = int(void* stream, int* status);

// Has the layout of the result of PyTorch's getCurrentCUDAStream: a class of 16 bytes, which is
// returned in two registers. It is passed on unchanged, so it does not matter which member lies in
// which word.
struct TorchStream {
    std::uint64_t words[2];
};

struct TorchNames {
    const char* current;  // c10::cuda::getCurrentCUDAStream(signed char)
    const char* stream;   // c10::cuda::CUDAStream::stream() const
};

constexpr TorchNames k_torch_cuda = {"_ZN3c104cuda20getCurrentCUDAStreamEa", "_ZNK3c104cuda10CUDAStream6streamEv"};
constexpr TorchNames k_torch_hip = {"_ZN3c103hip19getCurrentHIPStreamEa", "_ZNK3c103hip9HIPStream6streamEv"};

struct Runtime {
    const char* name;
    const char* is_capturing;
    std::initializer_list<const char*> libraries;
    const char* torch_library;
    std::initializer_list<TorchNames> torch;
};

const Runtime k_cuda = {"CUDA", "cuStreamIsCapturing", {"libcuda.so.1"}, "libc10_cuda.so", {k_torch_cuda}};
// In ROCm builds, PyTorch used the names of HIP, and uses those of CUDA since 2.11.
const Runtime k_hip = {"HIP", "hipStreamIsCapturing", k_hip_libraries, "libc10_hip.so", {k_torch_hip, k_torch_cuda}};

// Looks only in what is loaded already, because whoever captures has loaded it.
void* loaded(const char* name, std::initializer_list<const char*> libraries) {
    return find_symbol(name, libraries, false);
}

// Returns PyTorch's current stream of this thread, or the default stream without PyTorch.
void* torch_stream(const Runtime& runtime) {
    for (const TorchNames& names : runtime.torch) {
        void* const current = loaded(names.current, {runtime.torch_library});
        void* const stream = loaded(names.stream, {runtime.torch_library});
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
    const auto add = [&](const char* push_name, const char* pop_name, std::initializer_list<const char*> libraries) {
        // In a privileged program, nothing is loaded that a search path could name.
        void* const push = find_symbol(push_name, libraries, !is_privileged());
        void* const pop = push == nullptr ? nullptr : find_symbol(pop_name, libraries, !is_privileged());
        if (pop != nullptr) found.push_back({reinterpret_cast<Push>(push), reinterpret_cast<Pop>(pop)});
    };
    add("nvtxRangePushA", "nvtxRangePop", {"libnvToolsExt.so.1", "libnvToolsExt.so"});
    add("roctxRangePushA", "roctxRangePop", {"librocprofiler-sdk-roctx.so.1", "libroctx64.so.4", "libroctx64.so"});
    return found;
}

Lasting<std::vector<Ranges>> g_ranges;

}  // namespace

void* find_symbol(const char* name, std::initializer_list<const char*> libraries, bool may_load) {
    if (void* found = dlsym(RTLD_DEFAULT, name)) return found;
    for (const int flags : {RTLD_LAZY | RTLD_NOLOAD, RTLD_LAZY}) {
        for (const char* library : libraries) {
            void* const handle = dlopen(library, flags);  // stays open, because the function is kept
            if (handle == nullptr) continue;
            if (void* found = dlsym(handle, name)) return found;
        }
        if (!may_load) break;
    }
    return nullptr;
}

std::string capturing_runtime(const std::string& toolchain) {
    if (toolchain != LAZYCK_TOOLCHAIN_CUDA && toolchain != LAZYCK_TOOLCHAIN_ROCM) return "";
    const Runtime& runtime = toolchain == LAZYCK_TOOLCHAIN_CUDA ? k_cuda : k_hip;
    auto* const is_capturing = reinterpret_cast<IsCapturing*>(loaded(runtime.is_capturing, runtime.libraries));
    if (is_capturing == nullptr) return "";
    // CUDA knows the legacy default stream and the thread's own by the numbers 1 and 2.
    const std::uintptr_t by_thread = toolchain == LAZYCK_TOOLCHAIN_CUDA ? 2 : 0;
    for (void* const stream :
         {torch_stream(runtime), static_cast<void*>(nullptr), reinterpret_cast<void*>(by_thread)}) {
        int status = 0;
        const int error = is_capturing(stream, &status);
        if ((error == 0 && status == k_active) || error == k_implicit) return runtime.name;
    }
    return "";
}

Range::Range(const std::string& name) {
    for (const Ranges& each : g_ranges.get(find_ranges)) each.push(name.c_str());
}

Range::~Range() {
    for (const Ranges& each : g_ranges.get(find_ranges)) each.pop();
}

}  // namespace lazyck::rt
