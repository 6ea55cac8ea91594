// Stands before the shared CUDA runtime and records which kernels were registered, under which
// handles, and which handles are asked for. Nothing here needs a GPU: a launch of a registered
// kernel succeeds and is recorded.
//
// CUDA_SPY names the file to write. Its lines are `image` and `end` around what is registered of an
// image, `register NAME CODE`, `ask NAME` and `launch NAME`. NAME is `UNKNOWN` for a handle that
// nobody registered. ` asked` follows a launch whose very handle was asked for before. CODE is a
// digest of the machine code that the image has for the kernel, or `none`. A variable has the line
// `register NAME variable`.
//
// SPY_DEVICES lists the capabilities of the devices that there are, such as `80 90`. With SPY_ARCH,
// CODE is that of the image for this capability.
#include <elf.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

std::map<const void*, std::string>& registered() {
    static auto& handles = *new std::map<const void*, std::string>();
    return handles;
}

struct Configuration {
    unsigned grid[3], block[3];
    std::size_t shared;
    void* stream;
};
// nvcc's host code passes this for its device code: a container of images, each behind a header of
// its own.
struct Binary {
    int magic, version;
    const unsigned char* data;
    const void* unused;
};
// This is never destroyed, since a library's binaries are unregistered at the program's end.
std::map<void**, const Binary*>& binaries = *new std::map<void**, const Binary*>();

std::string digest(const unsigned char* image, const std::string& kernel) {
    const auto& head = *reinterpret_cast<const Elf64_Ehdr*>(image);
    const auto* const rows = reinterpret_cast<const Elf64_Shdr*>(image + head.e_shoff);
    const char* const names = reinterpret_cast<const char*>(image + rows[head.e_shstrndx].sh_offset);
    for (int i = 0; i < head.e_shnum; ++i) {
        if (names + rows[i].sh_name != ".text." + kernel) continue;
        std::string code(reinterpret_cast<const char*>(image + rows[i].sh_offset), rows[i].sh_size);
        // Clear instructions with addresses in them, as each image has its own places for strings
        // and variables.
        for (int k = 0; k < head.e_shnum; ++k) {
            const bool has_addends = rows[k].sh_type == SHT_RELA;
            if ((rows[k].sh_type != SHT_REL && !has_addends) || rows[k].sh_info != static_cast<unsigned>(i)) continue;
            const std::size_t step = has_addends ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
            for (std::size_t at = 0; at < rows[k].sh_size; at += step) {
                std::uint64_t place = 0;
                std::memcpy(&place, image + rows[k].sh_offset + at, sizeof place);
                code.replace(place / 16 * 16, 16, 16, '\0');
            }
        }
        // Clear also the offsets of these addresses in constant bank 4. Such an offset is an
        // operand, or a number that is moved into the register that reads the bank (`printf`).
        bool has_addresses = false;
        const auto word = [&](std::size_t at) {
            std::uint32_t value = 0;
            std::memcpy(&value, code.data() + at, sizeof value);
            return value;
        };
        for (std::size_t at = 0; at + 16 <= code.size(); at += 16) {
            if (word(at + 4) >> 22 != 4) continue;
            code.replace(at + 4, 4, 4, '\0');
            has_addresses = true;
        }
        for (std::size_t at = 0; has_addresses && at + 16 <= code.size(); at += 16) {
            if ((word(at) & 0xfff) == 0x802) code.replace(at + 4, 4, 4, '\0');
        }
        return std::to_string(code.size()) + "-" + std::to_string(std::hash<std::string>()(code));
    }
    return "none";
}

// Returns the digest of a kernel in the first image of machine code, or in that for SPY_ARCH, or
// `none`.
std::string code_of(void** binary, const std::string& kernel) {
    const char* const arch = std::getenv("SPY_ARCH");
    const unsigned char* at = binaries.at(binary)->data;
    std::uint64_t size = 0;
    std::memcpy(&size, at + 8, sizeof size);
    const unsigned char* const end = at + 16 + size;
    for (at += 16; at < end;) {
        std::uint16_t kind = 0;
        std::uint32_t head = 0, capability = 0;
        std::memcpy(&kind, at, sizeof kind);
        std::memcpy(&head, at + 4, sizeof head);
        std::memcpy(&size, at + 8, sizeof size);
        std::memcpy(&capability, at + 28, sizeof capability);
        const bool is_wanted = arch == nullptr || std::to_string(capability) == arch;
        if (is_wanted && kind == 2 && std::memcmp(at + head, ELFMAG, SELFMAG) == 0) return digest(at + head, kernel);
        at += head + size;
    }
    return "none";
}

std::vector<int> devices() {
    std::vector<int> all;
    const char* const listed = std::getenv("SPY_DEVICES");
    std::istringstream words(listed == nullptr ? "" : listed);
    for (int capability = 0; words >> capability;) all.push_back(capability);
    return all;
}

std::vector<Configuration> pushed;
std::set<const void*> asked;
int error = 0;

void write(const std::string& line) {
    if (std::FILE* out = std::fopen(std::getenv("CUDA_SPY"), "a")) {
        std::fprintf(out, "%s\n", line.c_str());
        std::fclose(out);
    }
}

int note(const char* what, const void* handle) {
    const auto found = registered().find(handle);
    const bool is_known = found != registered().end();
    const char* const more = *what == 'l' && asked.count(handle) != 0 ? " asked" : "";
    write(std::string(what) + " " + (is_known ? found->second : "UNKNOWN") + more);
    if (*what == 'a') asked.insert(handle);
    if (!is_known) error = 98;  // cudaErrorInvalidDeviceFunction
    return is_known ? 0 : 98;
}

}  // namespace

extern "C" {

struct Extent {
    unsigned x, y, z;
};

void** __cudaRegisterFatBinary(void* binary) {
    auto* const module = static_cast<void**>(std::malloc(sizeof(void*)));
    binaries[module] = static_cast<const Binary*>(binary);
    write("image");
    return module;
}
void __cudaRegisterFatBinaryEnd(void**) { write("end"); }
void __cudaUnregisterFatBinary(void** module) { binaries.erase(module); }
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char* handle, char*, const char* name, int, std::size_t, int, int) {
    registered()[handle] = name;
    write(std::string("register ") + name + " variable");
}
void __cudaRegisterManagedVar(void** module, void** handle, char*, const char* name, int, std::size_t size, int, int) {
    __cudaRegisterVar(module, reinterpret_cast<char*>(handle), nullptr, name, 0, size, 0, 0);
    *handle = std::calloc(1, size);
}

void __cudaRegisterFunction(void** module, const char* handle, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
    registered()[handle] = name;
    write(std::string("register ") + name + " " + code_of(module, name));
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
int cudaFuncSetCacheConfig(const void* handle, int) { return note("ask", handle); }
int cudaFuncGetName(const char** name, const void* handle) {
    *name = "";
    return note("ask", handle);
}
int cudaGetFuncBySymbol(void** function, const void* handle) {
    *function = const_cast<void*>(handle);
    return note("ask", handle);
}
int cudaGetKernel(void** kernel, const void* handle) { return cudaGetFuncBySymbol(kernel, handle); }
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* handle, int, std::size_t) {
    *blocks = 2;
    return note("ask", handle);
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* handle, int, std::size_t,
                                                           unsigned) {
    *blocks = 2;
    return note("ask", handle);
}
int cudaOccupancyMaxActiveClusters(int* clusters, const void* handle, const void*) {
    *clusters = 2;
    return note("ask", handle);
}
int cudaLaunchCooperativeKernel(const void* handle, Extent, Extent, void**, std::size_t, void*) {
    return note("launch", handle);
}
int cudaGraphAddKernelNode(void**, void*, const void*, std::size_t, const void* const* parameters) {
    return note("ask", parameters[0]);
}
int cudaGraphKernelNodeSetParams(void*, const void* const* parameters) { return note("ask", parameters[0]); }
int cudaGraphExecKernelNodeSetParams(void*, void*, const void* const* parameters) { return note("ask", parameters[0]); }
int cudaMemcpyToSymbol(const void* handle, const void*, std::size_t, std::size_t, int) { return note("ask", handle); }
int cudaMemcpyFromSymbol(void*, const void* handle, std::size_t, std::size_t, int) { return note("ask", handle); }
int cudaMemcpyToSymbolAsync(const void* handle, const void*, std::size_t, std::size_t, int, void*) {
    return note("ask", handle);
}
int cudaGetSymbolAddress(void** address, const void* handle) {
    *address = nullptr;
    return note("ask", handle);
}
int cudaGetSymbolSize(std::size_t* size, const void* handle) {
    *size = 0;
    return note("ask", handle);
}
int cudaLaunchKernelExC(const void*, const void* handle, void**) { return note("launch", handle); }

// nvcc 13 asks for the kernel behind a handle, and launches that kernel.
int __cudaGetKernel(void** kernel, const void* handle) {
    *kernel = const_cast<void*>(handle);
    return 0;
}
int __cudaLaunchKernel(void* kernel, Extent, Extent, void**, std::size_t, void*) { return note("launch", kernel); }

// --default-stream per-thread calls these names.
decltype(cudaLaunchKernel) cudaLaunchKernel_ptsz __attribute__((alias("cudaLaunchKernel")));
decltype(cudaLaunchKernelExC) cudaLaunchKernelExC_ptsz __attribute__((alias("cudaLaunchKernelExC")));
decltype(__cudaLaunchKernel) __cudaLaunchKernel_ptsz __attribute__((alias("__cudaLaunchKernel")));

// These are weak, since examples/gpu_projects has others.
__attribute__((weak)) int cudaGetDeviceCount(int* count) {
    *count = static_cast<int>(devices().size());
    return *count == 0 ? 100 : 0;  // cudaErrorNoDevice
}
__attribute__((weak)) int cudaGetDevice(int* device) {
    *device = 0;
    return devices().empty() ? 100 : 0;
}
__attribute__((weak)) int cudaDeviceGetAttribute(int* value, int attribute, int device) {
    const std::vector<int> all = devices();
    if (device < 0 || device >= static_cast<int>(all.size())) return 101;  // cudaErrorInvalidDevice
    *value = attribute == 75 ? all[device] / 10 : attribute == 76 ? all[device] % 10 : 0;
    return 0;
}

int cudaPeekAtLastError() { return error; }
int cudaGetLastError() {
    const int last = error;
    error = 0;
    return last;
}

}  // extern "C"
