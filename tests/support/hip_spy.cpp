// Stands before the HIP runtime and records, as cuda_spy.cpp does, which kernels were registered,
// under which handles, and which handles are asked for. Nothing here needs a GPU: a launch of a
// registered kernel succeeds and is recorded.
//
// HIP_SPY names the file to write. Its lines are `register NAME CODE`, `ask NAME` and `launch
// NAME`. NAME is `UNKNOWN` for a handle that nobody registered. CODE is a digest of the machine
// code that the image has for the kernel, or `none`. A variable has the line `register NAME
// variable`.
//
// SPY_DEVICES lists the archs of the devices that there are, such as `gfx908 gfx90a`. With
// SPY_ARCH, CODE is that of the image for this arch.
#include <elf.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::map<const void*, std::string>& registered() {
    static std::map<const void*, std::string> handles;
    return handles;
}

struct Extent {
    unsigned x, y, z;
};
struct Configuration {
    Extent grid, block;
    std::size_t shared;
    void* stream;
};
// clang's host code passes this for its device code: an offload bundle.
struct Binary {
    int magic, version;
    const unsigned char* data;
    const void* unused;
};

template <class T>
T read(const void* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Clears the distances that follow `s_getpc_b64`, as each image has its own places for variables
// and functions.
std::string without_distances(std::string code) {
    const auto word = [&](std::size_t at) { return read<std::uint32_t>(code.data() + at); };
    for (std::size_t at = 0; at + 24 <= code.size(); at += 4) {
        if ((word(at) & 0xff80ff00) != 0xbe801c00) continue;
        for (std::size_t next = at + 4; next <= at + 16; next += 4) {
            const std::uint32_t each = word(next);  // this is s_add_u32 or s_addc_u32, with a literal
            const bool is_sum = each >> 23 == 0x100 || each >> 23 == 0x104 || each >> 23 == 0x105;
            if (!is_sum || (each >> 8 & 0xff) != 0xff) continue;
            next += 4;
            code.replace(next, 4, 4, '\0');
        }
    }
    return code;
}

std::string digest(const unsigned char* image, const std::string& kernel) {
    const auto head = read<Elf64_Ehdr>(image);
    const auto row = [&](unsigned i) { return read<Elf64_Shdr>(image + head.e_shoff + i * sizeof(Elf64_Shdr)); };
    for (unsigned i = 0; i < head.e_shnum; ++i) {
        if (row(i).sh_type != SHT_DYNSYM) continue;
        const char* const names = reinterpret_cast<const char*>(image + row(row(i).sh_link).sh_offset);
        for (std::size_t at = 0; at < row(i).sh_size; at += sizeof(Elf64_Sym)) {
            const auto symbol = read<Elf64_Sym>(image + row(i).sh_offset + at);
            if (names + symbol.st_name != kernel || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
            const Elf64_Shdr text = row(symbol.st_shndx);
            const auto* const code = image + text.sh_offset + (symbol.st_value - text.sh_addr);
            const std::string bytes(reinterpret_cast<const char*>(code), symbol.st_size);
            return std::to_string(bytes.size()) + "-" +
                   std::to_string(std::hash<std::string>()(without_distances(bytes)));
        }
    }
    return "none";
}

// Returns the digest of a kernel in the first image for a device, or in that for SPY_ARCH, or
// `none`.
std::string code_of(const Binary* binary, const std::string& kernel) {
    const unsigned char* const data = binary->data;
    if (std::memcmp(data, "__CLANG_OFFLOAD_BUNDLE__", 24) != 0) return "none";
    const char* const arch = std::getenv("SPY_ARCH");
    const unsigned char* at = data + 32;
    for (auto left = read<std::uint64_t>(data + 24); left > 0; --left) {
        const auto offset = read<std::uint64_t>(at), size = read<std::uint64_t>(at + 8),
                   length = read<std::uint64_t>(at + 16);
        const std::string name(reinterpret_cast<const char*>(at) + 24, length);
        const bool is_wanted = arch == nullptr || name.substr(name.rfind('-') + 1) == arch;
        if (is_wanted && size >= sizeof(Elf64_Ehdr) && offset % 4096 == 0 &&
            std::memcmp(data + offset, ELFMAG, SELFMAG) == 0)
            return digest(data + offset, kernel);
        at += 24 + length;
    }
    return "none";
}

std::vector<std::string> devices() {
    std::vector<std::string> all;
    const char* const listed = std::getenv("SPY_DEVICES");
    std::istringstream words(listed == nullptr ? "" : listed);
    for (std::string arch; words >> arch;) all.push_back(arch);
    return all;
}

std::vector<Configuration> pushed;
int error = 0;

void write(const std::string& line) {
    if (std::FILE* out = std::fopen(std::getenv("HIP_SPY"), "a")) {
        std::fprintf(out, "%s\n", line.c_str());
        std::fclose(out);
    }
}

int note(const char* what, const void* handle) {
    const auto found = registered().find(handle);
    const bool is_known = found != registered().end();
    write(std::string(what) + " " + (is_known ? found->second : "UNKNOWN"));
    if (!is_known) error = 98;  // hipErrorInvalidDeviceFunction
    return is_known ? 0 : 98;
}

// This has the layout of hipKernelNodeParams.
struct Node {
    Extent block;
    void** extra;
    const void* function;
    Extent grid;
    void** arguments;
    unsigned shared;
};
// This has the layout of hipLaunchParams.
struct Launch {
    const void* function;
    Extent grid, block;
    void** arguments;
    std::size_t shared;
    void* stream;
};

}  // namespace

extern "C" {

int hipGetDeviceCount(int* count) {
    *count = static_cast<int>(devices().size());
    return *count == 0 ? 100 : 0;  // hipErrorNoDevice
}
int hipGetDevice(int* device) {
    *device = 0;
    return devices().empty() ? 100 : 0;
}
int hipGetDevicePropertiesR0600(char* properties, int device) {
    const std::vector<std::string> all = devices();
    if (device < 0 || device >= static_cast<int>(all.size())) return 101;  // hipErrorInvalidDevice
    std::strcpy(properties + 1160, all[device].c_str());
    return 0;
}

void** __hipRegisterFatBinary(const void* binary) { return static_cast<void**>(const_cast<void*>(binary)); }
void __hipUnregisterFatBinary(void**) {}
void __hipRegisterVar(void**, void* handle, char*, char* name, int, std::size_t, int, int) {
    registered()[handle] = name;
    write(std::string("register ") + name + " variable");
}
void __hipRegisterFunction(void** module, const void* handle, char*, const char* name, unsigned, void*, void*, void*,
                           void*, int*) {
    registered()[handle] = name;
    write(std::string("register ") + name + " " + code_of(reinterpret_cast<const Binary*>(module), name));
}

int __hipPushCallConfiguration(Extent grid, Extent block, std::size_t shared, void* stream) {
    pushed.push_back({grid, block, shared, stream});
    return 0;
}
int __hipPopCallConfiguration(Extent* grid, Extent* block, std::size_t* shared, void** stream) {
    if (pushed.empty()) return 9;  // hipErrorInvalidConfiguration
    const Configuration last = pushed.back();
    pushed.pop_back();
    *grid = last.grid;
    *block = last.block;
    *shared = last.shared;
    *stream = last.stream;
    return 0;
}

int hipLaunchKernel(const void* handle, Extent, Extent, void**, std::size_t, void*) { return note("launch", handle); }
int hipExtLaunchKernel(const void* handle, Extent, Extent, void**, std::size_t, void*, void*, void*, int) {
    return note("launch", handle);
}
int hipLaunchCooperativeKernel(const void* handle, Extent, Extent, void**, unsigned, void*) {
    return note("launch", handle);
}
int hipExtLaunchMultiKernelMultiDevice(const Launch* launches, int count, unsigned) {
    for (int i = 0; i < count; ++i) note("launch", launches[i].function);
    return 0;
}
int hipFuncSetAttribute(const void* handle, int, int) { return note("ask", handle); }
int hipFuncGetAttributes(void*, const void* handle) { return note("ask", handle); }
int hipFuncSetCacheConfig(const void* handle, int) { return note("ask", handle); }
int hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* handle, int, std::size_t) {
    *blocks = 2;
    return note("ask", handle);
}
int hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void* handle, std::size_t, int) {
    *grid = *block = 1;
    return note("ask", handle);
}
int hipGraphAddKernelNode(void**, void*, const void*, std::size_t, const Node* node) {
    return note("ask", node->function);
}
int hipGraphKernelNodeSetParams(void*, const Node* node) { return note("ask", node->function); }
int hipGraphExecKernelNodeSetParams(void*, void*, const Node* node) { return note("ask", node->function); }
int hipMemcpyToSymbol(const void* handle, const void*, std::size_t, std::size_t, int) { return note("ask", handle); }
int hipMemcpyFromSymbol(void*, const void* handle, std::size_t, std::size_t, int) { return note("ask", handle); }
int hipGetSymbolAddress(void** address, const void* handle) {
    *address = nullptr;
    return note("ask", handle);
}
int hipGetSymbolSize(std::size_t* size, const void* handle) {
    *size = 0;
    return note("ask", handle);
}
int hipGetLastError() {
    const int last = error;
    error = 0;
    return last;
}

}  // extern "C"
