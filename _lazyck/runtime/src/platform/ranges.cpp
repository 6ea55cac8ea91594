// Looks for a profiler's library once, when the first compile begins: first among the loaded
// libraries, then by its name. Nothing links against it.
#include "platform/ranges.h"

#include <vector>

#include "base/lasting.h"
#include "platform/environment.h"
#include "platform/gpu.h"

namespace lazyck::rt {

namespace {

using Push = int (*)(const char*);
using Pop = int (*)();

struct Ranges {
    Push push;
    Pop pop;
};

std::vector<Ranges> find_ranges() {
    std::vector<Ranges> found;
    const auto add = [&](const char* push_name, const char* pop_name, std::initializer_list<const char*> libraries) {
        // In a privileged program, nothing is loaded that a search path could name.
        void* const push = find_symbol(push_name, libraries, !is_privileged());
        void* const pop = push == nullptr ? nullptr : find_symbol(pop_name, libraries, !is_privileged());
        if (pop != nullptr) found.push_back({reinterpret_cast<Push>(push), reinterpret_cast<Pop>(pop)});
    };
    add("nvtxRangePushA", "nvtxRangePop", {"libnvToolsExt.so.1", "libnvToolsExt.so"});
    add("roctxRangePushA", "roctxRangePop", {"librocprofiler-sdk-roctx.so.1", "libroctx64.so.4", "libroctx64.so"});
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
