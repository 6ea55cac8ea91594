// hipLaunchKernelGGL and the typed launch functions. A kernel and its arguments become one closure,
// which the runtime calls once per thread.
#pragma once
#pragma GCC system_header

#include <fake_rocm/kernel_abi.h>
#include <fake_rocm/tu.h>

#include <tuple>
#include <type_traits>
#include <utility>

namespace fake_rocm {

struct LaunchConfig {
    dim3 m_grid, m_block;
    size_t m_shared;
    hipStream_t m_stream;
    const char* m_text;
    const char* m_archs;
};

template <class... Params>
hipError_t launch(void (*kernel)(Params...), const LaunchConfig& config, std::tuple<Params...>&& arguments) {
    struct Closure {
        void (*m_kernel)(Params...);
        std::tuple<Params...>& m_arguments;
    } closure{kernel, arguments};
    // If kernels are in an image, this name is only their handle.
    hipFunction_t code = nullptr;
    const hipError_t error = hipGetFuncBySymbol(&code, reinterpret_cast<const void*>(kernel));
    if (error != hipSuccess) return error;
    closure.m_kernel = reinterpret_cast<void (*)(Params...)>(code);
    const fake_rocm_kernel description{reinterpret_cast<const void*>(kernel), config.m_text, config.m_archs};
    return fake_rocm_launch(
        &description, config.m_grid, config.m_block, config.m_shared, config.m_stream,
        [](const void* opaque) {
            const auto& c = *static_cast<const Closure*>(opaque);
            std::apply(c.m_kernel, c.m_arguments);
        },
        &closure);
}

// run() has only the template parameters of the kernel, so literals such as 0 and nullptr convert
// as in a plain call.
template <class... Params>
struct Launcher {
    void (*m_kernel)(Params...);
    LaunchConfig m_config;

    void run(hipStream_t stream, Params... arguments) {
        m_config.m_stream = stream;
        // The error stays in hipGetLastError, where a caller of <<<>>> looks for it.
        (void)launch(m_kernel, m_config, std::tuple<Params...>(std::forward<Params>(arguments)...));
    }
};

template <class... Params>
Launcher<Params...> launcher(void (*kernel)(Params...), const char* text, const char* archs, dim3 grid, dim3 block,
                             size_t shared) {
    return {kernel, {grid, block, shared, nullptr, text, archs}};
}

template <class... Params, size_t... I>
hipError_t launch_with_pointers(void (*kernel)(Params...), const LaunchConfig& config, void** arguments,
                                std::index_sequence<I...>) {
    (void)arguments;  // a kernel without parameters reads none
    return launch(kernel, config,
                  std::tuple<Params...>(*static_cast<std::remove_reference_t<Params>*>(arguments[I])...));
}

// hipcc turns `kernel<<<grid, block, shared, stream>>>(arguments)` into `kernel ->*
// Configured(...)(arguments)`: the call only gathers the arguments, and ->* launches.
template <class... Args>
struct Configured {
    LaunchConfig m_config;
    std::tuple<Args...> m_arguments;
};

struct Configure {
    LaunchConfig m_config;

    Configure(const char* archs, dim3 grid, dim3 block, size_t shared = 0, hipStream_t stream = nullptr)
        : m_config{grid, block, shared, stream, nullptr, archs} {}

    template <class... Args>
    Configured<Args&&...> operator()(Args&&... arguments) const {
        return {m_config, std::tuple<Args&&...>(std::forward<Args>(arguments)...)};
    }
};

// A literal 0 or NULL has become an int here; for a pointer it is still the null pointer.
template <class To, class From>
To convert_argument(From&& value) {
    if constexpr (std::is_pointer_v<To> && std::is_integral_v<std::remove_reference_t<From>>)
        return value == 0 ? nullptr : reinterpret_cast<To>(static_cast<uintptr_t>(value));
    else
        return std::forward<From>(value);
}

template <class... Params, class... Args>
void operator->*(void (*kernel)(Params...), Configured<Args...>&& configured) {
    static_assert(sizeof...(Params) == sizeof...(Args), "a kernel launch needs one argument for each parameter");
    (void)std::apply(
        [&](auto&&... argument) {
            return launch(
                kernel, configured.m_config,
                std::tuple<Params...>(convert_argument<Params>(std::forward<decltype(argument)>(argument))...));
        },
        std::move(configured.m_arguments));
}

}  // namespace fake_rocm

#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define hipLaunchKernelGGL(kernel, grid, block, shared, ...) \
    ::fake_rocm::launcher((kernel), #kernel, ::fake_rocm::k_tu_archs, (grid), (block), (shared)).run(__VA_ARGS__)

// The type of the kernel makes these work: a bare `const void*` (see hipLaunchKernel in the
// runtime) does not say how to pass the arguments on a CPU.
template <class... Params>
hipError_t hipLaunchKernel(void (*kernel)(Params...), dim3 grid, dim3 block, void** arguments, size_t shared,
                           hipStream_t stream, const char* archs = fake_rocm::k_tu_archs) {
    return fake_rocm::launch_with_pointers(kernel, {grid, block, shared, stream, nullptr, archs}, arguments,
                                           std::index_sequence_for<Params...>());
}
template <class... Params>
hipError_t hipLaunchCooperativeKernel(void (*kernel)(Params...), dim3 grid, dim3 block, void** arguments,
                                      unsigned int shared, hipStream_t stream,
                                      const char* archs = fake_rocm::k_tu_archs) {
    return hipLaunchKernel(kernel, grid, block, arguments, shared, stream, archs);
}
