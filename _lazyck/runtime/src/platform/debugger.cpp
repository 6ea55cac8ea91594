// gdb reads the names of all objects again when one is unloaded. So this loads an object that is
// unloaded at once, before gdb hears of it, because it needs a library that cannot exist. The
// object is a file in memory, so that no other file can be taken for it.
#include "platform/debugger.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>

#include "platform/files.h"
#include "platform/memory_file.h"

namespace lazyck::rt {

namespace {

constexpr char k_strings[] = "\0/dev/null/lazyck";
constexpr char k_tracer[] = "TracerPid:\t";

struct LoadedImage {
    ElfW(Ehdr) header;
    ElfW(Phdr) segments[3];
    ElfW(Dyn) dynamic[5];
    ElfW(Sym) symbol;
    char strings[sizeof k_strings];
};

// Returns an object of this process's own machine and class.
LoadedImage make_image() {
    LoadedImage image = {};
    std::memcpy(image.header.e_ident, ELFMAG, SELFMAG);
    image.header.e_ident[EI_CLASS] = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
    image.header.e_ident[EI_DATA] = ELFDATA2LSB;
    image.header.e_ident[EI_VERSION] = EV_CURRENT;
    image.header.e_type = ET_DYN;
#ifdef __aarch64__
    image.header.e_machine = EM_AARCH64;
#else
    image.header.e_machine = EM_X86_64;
#endif
    image.header.e_version = EV_CURRENT;
    image.header.e_phoff = offsetof(LoadedImage, segments);
    image.header.e_ehsize = sizeof image.header;
    image.header.e_phentsize = sizeof image.segments[0];
    image.header.e_phnum = sizeof image.segments / sizeof image.segments[0];
    const auto segment = [&](unsigned i, unsigned type, std::size_t at, std::size_t size) {
        image.segments[i].p_type = type;
        image.segments[i].p_flags = PF_R | PF_W;
        image.segments[i].p_offset = image.segments[i].p_vaddr = image.segments[i].p_paddr = at;
        image.segments[i].p_filesz = image.segments[i].p_memsz = size;
        image.segments[i].p_align = type == PT_LOAD ? 1 << 16 : sizeof(void*);
    };
    segment(0, PT_LOAD, 0, sizeof image);
    segment(1, PT_DYNAMIC, offsetof(LoadedImage, dynamic), sizeof image.dynamic);
    segment(2, PT_GNU_STACK, 0, 0);  // without it, a loader may make stacks executable
    const auto entry = [&](unsigned i, std::int64_t tag, std::size_t value) {
        image.dynamic[i].d_tag = tag;
        image.dynamic[i].d_un.d_val = value;
    };
    entry(0, DT_NEEDED, 1);
    entry(1, DT_STRTAB, offsetof(LoadedImage, strings));
    entry(2, DT_STRSZ, sizeof image.strings);
    entry(3, DT_SYMTAB, offsetof(LoadedImage, symbol));
    std::memcpy(image.strings, k_strings, sizeof k_strings);
    return image;
}

}  // namespace

bool is_traced() {
    // Reading the status costs as much as loading an entry, so it is done at most once a second.
    static std::atomic<std::time_t> asked{0};  // constant-initialized, so that it has no guard
    static std::atomic<bool> answer{false};
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (asked.exchange(now.tv_sec + 1) == now.tv_sec + 1) return answer;
    char text[1024];  // the line is one of the first
    const UniqueFd status(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
    const ssize_t size = status ? read(status.get(), text, sizeof text) : 0;
    const std::string_view said(text, size > 0 ? static_cast<std::size_t>(size) : 0);
    const std::size_t at = said.find(k_tracer);
    answer = at != std::string_view::npos && said.substr(at + sizeof k_tracer - 1, 1) != "0";
    return answer;
}

void refresh_debugger() {
    if (!is_traced()) return;
    const LoadedImage image = make_image();
    const UniqueFd file = make_memory_file();
    if (!file || !write_all(file.get(), {reinterpret_cast<const char*>(&image), sizeof image})) return;
    const std::string name = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.get());
    if (void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) dlclose(handle);
    dlerror();
}

}  // namespace lazyck::rt
