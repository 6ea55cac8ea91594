// Provides a "CUDA device" for a torch that was built without CUDA, so that extensions get as far
// as launching their kernels. Its memory is the host's, and what torch itself would compute there
// is computed on the host. Kernels are not run; the CUDA runtime records who launches them (see
// tests/support/cuda_spy.cpp). Linked as libc10_cuda-stand-in.so.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/core/impl/FakeGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, FakeGuardImpl<DeviceType::CUDA>)
}

namespace {

// Returns a tensor with the same memory on another device.
at::Tensor on(c10::DeviceType type, const at::Tensor& tensor) {
    const c10::Device device(type, type == c10::DeviceType::CUDA ? 0 : -1);
    return at::for_blob(tensor.data_ptr(), tensor.sizes())
        .strides(tensor.strides())
        .options(tensor.options().device(device))
        .target_device(device)
        .deleter([tensor](void*) {})
        .make_tensor();
}

c10::IValue moved(c10::DeviceType type, const c10::IValue& value) {
    const auto elsewhere = [type](const at::Tensor& t) { return t.defined() && t.device().type() != type; };
    if (value.isTensor()) return elsewhere(value.toTensor()) ? c10::IValue(on(type, value.toTensor())) : value;
    if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : value.toTensorVector()) list.push_back(elsewhere(t) ? on(type, t) : t);
        return list;
    }
    if (value.isDevice()) return c10::Device(type, type == c10::DeviceType::CUDA ? 0 : -1);
    return value;
}

// Computes on the host what torch asks of the device.
void on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const auto& schema = op.schema();
    const std::size_t count = schema.arguments().size();
    const std::vector<c10::IValue> given(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    stack->resize(stack->size() - count);
    for (const c10::IValue& value : given) stack->push_back(moved(c10::DeviceType::CPU, value));
    op.callBoxed(stack);
    const auto& returns = schema.returns();
    for (std::size_t i = 0; i < returns.size(); ++i) {
        c10::IValue& result = (*stack)[stack->size() - returns.size() + i];
        const auto* alias = returns[i].alias_info();
        c10::IValue out = moved(c10::DeviceType::CUDA, result);
        for (std::size_t a = 0; alias != nullptr && alias->isWrite() && a < count; ++a) {
            const auto* same = schema.arguments()[a].alias_info();
            if (same != nullptr && *same == *alias) out = given[a];
        }
        result = out;
    }
}

at::Tensor on_device(const at::Tensor& tensor) { return on(c10::DeviceType::CUDA, tensor.contiguous()); }

cudaDeviceProp& device_properties() {
    static cudaDeviceProp properties = [] {
        cudaDeviceProp made{};
        made.major = 9;
        made.multiProcessorCount = 132;
        made.warpSize = 32;
        made.maxThreadsPerBlock = 1024;
        made.maxThreadsPerMultiProcessor = 2048;
        made.sharedMemPerBlock = 48 << 10;
        made.sharedMemPerBlockOptin = 227 << 10;
        made.maxGridSize[0] = 0x7fffffff;
        made.maxGridSize[1] = made.maxGridSize[2] = 0xffff;
        return made;
    }();
    return properties;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_host>()); }
// copy_ has a kernel for every device already, which looks for CUDA's own.
TORCH_LIBRARY_IMPL(aten, CUDA, m) { m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&on_host>()); }
TORCH_LIBRARY(pretended, m) { m.def("cuda(Tensor tensor) -> Tensor", &on_device); }

namespace c10::cuda {

DeviceIndex device_count() noexcept { return 1; }
DeviceIndex device_count_ensure_non_zero() { return 1; }
DeviceIndex current_device() { return 0; }
void set_device(DeviceIndex, bool) {}
void device_synchronize() {}
cudaError_t GetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t GetDevice(DeviceIndex* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t SetDevice(DeviceIndex, bool) { return cudaSuccess; }
cudaError_t MaybeSetDevice(DeviceIndex) { return cudaSuccess; }
DeviceIndex ExchangeDevice(DeviceIndex) { return 0; }
DeviceIndex MaybeExchangeDevice(DeviceIndex) { return 0; }
void SetTargetDevice() {}

namespace {
CUDAStream stream_of_device() {
    return CUDAStream(CUDAStream::UNCHECKED, Stream(Stream::DEFAULT, Device(DeviceType::CUDA, 0)));
}
}  // namespace
cudaStream_t CUDAStream::stream() const { return nullptr; }
bool CUDAStream::query() const { return true; }
void CUDAStream::synchronize() const {}
CUDAStream getDefaultCUDAStream(DeviceIndex) { return stream_of_device(); }
CUDAStream getCurrentCUDAStream(DeviceIndex) { return stream_of_device(); }
CUDAStream getStreamFromPool(bool, DeviceIndex) { return stream_of_device(); }
CUDAStream getStreamFromPool(int, DeviceIndex) { return stream_of_device(); }
CUDAStream getStreamFromExternal(cudaStream_t, DeviceIndex) { return stream_of_device(); }
void setCurrentCUDAStream(CUDAStream) {}

void c10_cuda_check_implementation(int32_t error, const char* file, const char* function, uint32_t line, bool) {
    TORCH_CHECK(error == 0, "CUDA error ", error, " at ", file, ":", line, " in ", function);
}

}  // namespace c10::cuda

namespace c10::cuda::CUDACachingAllocator {
std::atomic<CUDAAllocator*> allocator;
}

namespace at::cuda {
cudaDeviceProp* getCurrentDeviceProperties() { return &device_properties(); }
cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) { return &device_properties(); }
int warp_size() { return 32; }
}  // namespace at::cuda

// torch's C functions are called by extensions that are to work with later versions of torch. A
// torch without CUDA has those of the device guard, too, but they end in an error.
extern "C" {
int32_t aoti_torch_get_current_cuda_stream(int32_t, void** stream) {
    *stream = nullptr;
    return 0;
}
int32_t aoti_torch_create_device_guard(int32_t, void** guard) {
    *guard = nullptr;
    return 0;
}
int32_t aoti_torch_delete_device_guard(void*) { return 0; }
int32_t torch_c10_cuda_check_msg(int32_t error, const char* file, const char*, uint32_t, bool, char** message) {
    *message = error == 0 ? nullptr : strdup(file);
    return 0;
}
void torch_c10_cuda_free_error_msg(char* message) { std::free(message); }
}
