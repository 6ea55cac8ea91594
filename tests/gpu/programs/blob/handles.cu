// This file uses the handle of a kernel in all ways besides a plain launch.
#include <cooperative_groups.h>

#include "launches.cuh"

namespace cg = cooperative_groups;

namespace {

constexpr int k_threads = 128;
constexpr std::size_t k_large = 96 << 10;  // bytes of shared memory: a kernel must opt in to more than 48 KB

__global__ void __launch_bounds__(256) plain(float* x) { x[threadIdx.x] = threadIdx.x; }

template <int N>
__global__ void with_shared(float* x) {
    __shared__ float own[N];
    own[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = own[N - 1 - threadIdx.x];
}

__global__ void large(float* x, int n) {
    extern __shared__ float own[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) own[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) x[0] = own[n - 1];
}

// Computes a sum over all blocks, which therefore must be on the device at the same time.
__global__ void cooperative(float* x) {
    if (threadIdx.x == 0) x[blockIdx.x] = blockIdx.x + 1;
    cg::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        float sum = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) sum += x[i];
        x[0] = sum;
    }
}

__global__ void clustered(float* x) {
#if __CUDA_ARCH__ >= 900
    __shared__ float own;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) own = cluster.block_rank() + 1;
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) *x = *cluster.map_shared_rank(&own, cluster.num_blocks() - 1);
    cluster.sync();
#endif
}

__constant__ float g_constant[4];
__device__ float g_variable;
__managed__ float g_managed;

__global__ void read_symbols(float* x) { x[0] = g_constant[1] + g_variable + g_managed; }

// Owns device memory whose first value is read back at the end.
class Buffer {
 public:
    explicit Buffer(int n) : m_error(cudaMalloc(&m_data, n * sizeof(float))) {
        if (m_error == cudaSuccess) cudaMemset(m_data, 0, n * sizeof(float));
    }
    ~Buffer() { cudaFree(m_data); }
    float* data() { return m_data; }
    std::string first() {
        const cudaError_t finished = cudaDeviceSynchronize();
        float value = -1;
        const cudaError_t copied = cudaMemcpy(&value, m_data, sizeof value, cudaMemcpyDeviceToHost);
        return line("  finished", finished) + line("  copied", copied, std::to_string(value));
    }

 private:
    float* m_data = nullptr;
    cudaError_t m_error;
};

template <typename Kernel>
std::string attributes(const char* name, Kernel* kernel) {
    cudaFuncAttributes found = {};
    const cudaError_t error = cudaFuncGetAttributes(&found, kernel);
    std::string more;
    for (const long value : {long(found.sharedSizeBytes), long(found.localSizeBytes), long(found.maxThreadsPerBlock),
                             long(found.numRegs), long(found.binaryVersion), long(found.maxDynamicSharedSizeBytes)})
        more += std::to_string(value) + " ";
    return line(name, error, more);
}

cudaLaunchConfig_t configuration(int blocks, int threads, cudaLaunchAttribute* attribute, int count) {
    cudaLaunchConfig_t made = {};
    made.gridDim = blocks;
    made.blockDim = threads;
    made.attrs = attribute;
    made.numAttrs = count;
    return made;
}

}  // namespace

std::string attributes_of_kernels() {
    std::string said = attributes("plain", plain) + attributes("with_shared<64>", with_shared<64>) +
                       attributes("with_shared<1024>", with_shared<1024>) + attributes("large", large);
    const char* name = "";
    const cudaError_t error = cudaFuncGetName(&name, reinterpret_cast<const void*>(plain));
    cudaFunction_t function = nullptr;
    const cudaError_t got = cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(with_shared<64>));
    return said + line("name", error, name) + line("function", got, function == nullptr ? "none" : "found");
}

std::string occupancy_of_kernels() {
    std::string said;
    int blocks = -1, smallest = -1, best = -1;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, k_threads, 0);
    said += line("blocks", error, std::to_string(blocks));
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, with_shared<1024>, 1024, 0);
    said += line("blocks", error, std::to_string(blocks));
    error = cudaOccupancyMaxPotentialBlockSize(&smallest, &best, plain, 0, 0);
    return said + line("potential", error, std::to_string(smallest) + " " + std::to_string(best));
}

std::string cooperative_launch() {
    Buffer x(64);
    float* data = x.data();
    void* arguments[] = {&data};
    const cudaError_t error = cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(cooperative), dim3(8),
                                                          dim3(k_threads), arguments, 0, nullptr);
    return line("cooperative", error) + x.first();
}

std::string cluster_launch() {
    Buffer x(1);
    cudaLaunchAttribute size = {};
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim = {4, 1, 1};
    const cudaLaunchConfig_t config = configuration(4, 32, &size, 1);
    int clusters = -1;
    const cudaError_t fits = cudaOccupancyMaxActiveClusters(&clusters, clustered, &config);
    const cudaError_t error = cudaLaunchKernelEx(&config, clustered, x.data());
    return line("clusters", fits, clusters > 0 ? "some" : "none") + line("cluster", error) + x.first();
}

std::string large_shared_memory() {
    Buffer x(1);
    const int n = k_large / sizeof(float);
    large<<<1, k_threads, k_large>>>(x.data(), n);
    std::string said = line("without asking", cudaGetLastError());
    said += line("asked", cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, k_large));
    large<<<1, k_threads, k_large>>>(x.data(), n);
    return said + line("launched", cudaGetLastError()) + x.first() + attributes("large", large);
}

std::string extended_launch() {
    Buffer x(k_threads);
    cudaLaunchAttribute priority = {};
    priority.id = cudaLaunchAttributePriority;
    priority.val.priority = 0;
    const cudaLaunchConfig_t config = configuration(1, 64, &priority, 1);
    const cudaError_t first = cudaLaunchKernelEx(&config, plain, x.data());
    const cudaError_t second = cudaLaunchKernelEx(&config, with_shared<64>, x.data());
    return line("extended", first) + line("extended", second) + x.first();
}

std::string memory_of_symbols() {
    Buffer x(1);
    const float host[4] = {1, 2, 3, 4}, one = 10;
    std::string said = line("constant", cudaMemcpyToSymbol(g_constant, host, sizeof host));
    said += line("variable", cudaMemcpyToSymbol(g_variable, &one, sizeof one));
    void* address = nullptr;
    std::size_t size = 0;
    const cudaError_t found = cudaGetSymbolAddress(&address, g_variable);
    said += line("address", found, address == nullptr ? "none" : "found");
    const cudaError_t asked = cudaGetSymbolSize(&size, g_constant);
    said += line("size", asked, std::to_string(size));
    // CUDA counts the constants of the module in which the kernel lies. For a kernel without
    // constants, a lazy library therefore reports 0.
    cudaFuncAttributes attributes = {};
    const cudaError_t got = cudaFuncGetAttributes(&attributes, read_symbols);
    said += line("constants", got, std::to_string(attributes.constSizeBytes));
    int devices = 0;  // managed memory cannot be touched without a device
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) g_managed = 100;
    read_symbols<<<1, 1>>>(x.data());
    return said + line("launched", cudaGetLastError()) + x.first();
}
