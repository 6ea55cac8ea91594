#include "store/jit_policy.h"

#include <dlfcn.h>

#include <set>
#include <string>

#include "base/text.h"
#include "lazyck_abi.h"
#include "platform/files.h"

namespace lazyck::rt {

namespace {

machine::Flag g_is_ready{false};

}  // namespace

bool set_ready(bool is_ready) { return g_is_ready.exchange(is_ready); }

bool is_ready() { return g_is_ready; }

// Each library has a runtime of its own, so the others are asked through the C interface. Asking
// reads their state and begins nothing in them.
bool is_process_ready() {
    std::set<std::string> paths;
    for (const std::string& line : split(read_text("/proc/self/maps"), "\n")) {
        const std::size_t path = line.find('/');
        if (path != std::string::npos && line.find(" r-xp ") < path) paths.insert(line.substr(path));
    }
    for (const std::string& path : paths) {
        void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
        if (handle == nullptr) continue;
        const auto ask = reinterpret_cast<int (*)(int)>(dlsym(handle, "lazyck_ready"));
        const bool is_found = ask != nullptr && ask(-1) == 1;
        dlclose(handle);
        if (is_found) return true;
    }
    return false;
}

const char* JitPolicy::forbidden_by() const {
    if (m_is_forbidden) return m_jit == Jit::off ? LAZYCK_ENV_JIT "=off" : "the program (lazyck_forbid_jit)";
    return m_jit == Jit::error && is_ready() ? LAZYCK_ENV_JIT "=error after warm-up (lazyck_ready)" : "";
}

}  // namespace lazyck::rt
