#include "platform/glibc.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "platform/threads.h"

namespace lazyck::rt {

namespace {

bool is_in_namespace_of_its_own() {
    Dl_info info;
    void* map = nullptr;
    Lmid_t space = LM_ID_BASE;
    if (dladdr1(reinterpret_cast<void*>(&may_ask_loader), &info, &map, RTLD_DL_LINKMAP) == 0) return false;
    return dlinfo(map, RTLD_DI_LMID, &space) == 0 && space != LM_ID_BASE;
}

}  // namespace

bool has_glibc(long minor) {
    constexpr char k_major[] = "2.";
    constexpr std::size_t k_size = sizeof k_major - 1;
    const char* const version = gnu_get_libc_version();
    return std::strncmp(version, k_major, k_size) != 0 || std::strtol(version + k_size, nullptr, 10) >= minor;
}

bool may_ask_loader() {
    static Lasting<bool> s_may_ask;
    return s_may_ask.get([] { return has_glibc(34) || !is_in_namespace_of_its_own(); });
}

}  // namespace lazyck::rt
