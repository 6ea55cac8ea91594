// Looks for a profiler's library once, when the first compile begins: first among the loaded
// libraries, then by its name. Nothing links against it.
#include "platform/ranges.h"

#include <dlfcn.h>

#include <vector>

#include "base/lasting.h"
#include "platform/environment.h"

namespace lazyck::rt {

namespace {

using Push = int (*)(const char*);
using Pop = int (*)();

struct Ranges {
    Push push;
    Pop pop;
};

struct Kind {
    const char* push;
    const char* pop;
    std::vector<const char*> libraries;
};

std::vector<Ranges> find_ranges() {
    const Kind kinds[] = {
        {"nvtxRangePushA", "nvtxRangePop", {"libnvToolsExt.so.1", "libnvToolsExt.so"}},
        {"roctxRangePushA", "roctxRangePop", {"librocprofiler-sdk-roctx.so.1", "libroctx64.so.4", "libroctx64.so"}},
    };
    std::vector<Ranges> found;
    for (const Kind& kind : kinds) {
        void* push = dlsym(RTLD_DEFAULT, kind.push);
        void* pop = push == nullptr ? nullptr : dlsym(RTLD_DEFAULT, kind.pop);
        // In a privileged program, nothing is loaded that a search path could name.
        for (std::size_t i = 0; pop == nullptr && i < kind.libraries.size() && !is_privileged(); ++i) {
            void* const library = dlopen(kind.libraries[i], RTLD_LAZY | RTLD_LOCAL);
            if (library == nullptr) continue;
            push = dlsym(library, kind.push);
            pop = push == nullptr ? nullptr : dlsym(library, kind.pop);
        }
        if (pop != nullptr) found.push_back({reinterpret_cast<Push>(push), reinterpret_cast<Pop>(pop)});
    }
    return found;
}

Lasting<std::vector<Ranges>> g_ranges;

}  // namespace

Range::Range(const std::string& name) {
    for (const Ranges& each : g_ranges.get(find_ranges)) each.push(name.c_str());
}

Range::~Range() {
    for (const Ranges& each : g_ranges.get(find_ranges)) each.pop();
}

}  // namespace lazyck::rt
