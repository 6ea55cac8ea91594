// Stands before the shared CUDA runtime and keeps its books: which kernels were registered, under which handles, and
// which handles are asked for. Nothing here needs a GPU: a launch of a registered kernel succeeds and is written down.
//
// CUDA_SPY names the file that it writes to: `register NAME`, `ask NAME` and `launch NAME`, with `UNKNOWN` as the name
// of a handle that nobody registered, and ` asked` after a launch whose very handle was asked for before.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

std::map<const void*, std::string>& registered() {
    static std::map<const void*, std::string> handles;
    return handles;
}

struct Configuration {
    unsigned grid[3], block[3];
    std::size_t shared;
    void* stream;
};
std::vector<Configuration> pushed;
std::set<const void*> asked;
int error = 0;

int note(const char* what, const void* handle) {
    const auto found = registered().find(handle);
    const bool is_known = found != registered().end();
    if (std::FILE* out = std::fopen(std::getenv("CUDA_SPY"), "a")) {
        const char* more = *what == 'l' && asked.count(handle) != 0 ? " asked" : "";
        std::fprintf(out, "%s %s%s\n", what, is_known ? found->second.c_str() : "UNKNOWN", more);
        std::fclose(out);
    }
    if (*what == 'a') asked.insert(handle);
    if (!is_known) error = 98;  // cudaErrorInvalidDeviceFunction
    return is_known ? 0 : 98;
}

}  // namespace

extern "C" {

struct Extent {
    unsigned x, y, z;
};

void** __cudaRegisterFatBinary(void*) {
    static void* binary;
    return &binary;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

void __cudaRegisterFunction(void**, const char* handle, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
    registered()[handle] = name;
    note("register", handle);
}

unsigned __cudaPushCallConfiguration(Extent grid, Extent block, std::size_t shared, void* stream) {
    pushed.push_back({{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, stream});
    return 0;
}

int __cudaPopCallConfiguration(Extent* grid, Extent* block, std::size_t* shared, void* stream) {
    if (pushed.empty()) return 9;  // cudaErrorInvalidConfiguration
    const Configuration last = pushed.back();
    pushed.pop_back();
    *grid = {last.grid[0], last.grid[1], last.grid[2]};
    *block = {last.block[0], last.block[1], last.block[2]};
    *shared = last.shared;
    *static_cast<void**>(stream) = last.stream;
    return 0;
}

int cudaFuncSetAttribute(const void* handle, int, int) { return note("ask", handle); }
int cudaFuncGetAttributes(void* found, const void* handle) {
    struct Attributes {
        std::size_t memory[3];
        int threads, registers, ptx, binary;
    };
    *static_cast<Attributes*>(found) = {{0, 0, 0}, 1024, 32, 90, 90};
    return note("ask", handle);
}
int cudaLaunchKernel(const void* handle, Extent, Extent, void**, std::size_t, void*) { return note("launch", handle); }
int cudaLaunchKernelExC(const void*, const void* handle, void**) { return note("launch", handle); }

// nvcc 13 asks for the kernel behind a handle, and launches that
int __cudaGetKernel(void** kernel, const void* handle) {
    *kernel = const_cast<void*>(handle);
    return 0;
}
int __cudaLaunchKernel(void* kernel, Extent, Extent, void**, std::size_t, void*) { return note("launch", kernel); }

// as --default-stream per-thread calls them
decltype(cudaLaunchKernel) cudaLaunchKernel_ptsz __attribute__((alias("cudaLaunchKernel")));
decltype(cudaLaunchKernelExC) cudaLaunchKernelExC_ptsz __attribute__((alias("cudaLaunchKernelExC")));
decltype(__cudaLaunchKernel) __cudaLaunchKernel_ptsz __attribute__((alias("__cudaLaunchKernel")));

int cudaPeekAtLastError() { return error; }
int cudaGetLastError() {
    const int last = error;
    error = 0;
    return last;
}

}  // extern "C"
