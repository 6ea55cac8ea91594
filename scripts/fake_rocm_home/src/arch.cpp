#include "arch.h"

namespace fake_rocm {
namespace {

constexpr Arch k_archs[] = {
#define FAKE_ROCM_ARCH_ROW(name, major, minor, units, lds, memory, generic) \
    {name, major, minor, units, lds, memory, generic},
#include "archs.inc"
#undef FAKE_ROCM_ARCH_ROW
};

std::string_view processor(std::string_view target) { return target.substr(0, target.find(':')); }

// Returns '+' or '-' if the target has it, and 0 if it leaves the feature open.
char feature(std::string_view target, std::string_view name) {
    for (const std::string& part : split(target, ':'))
        if (part.size() == name.size() + 1 && part.compare(0, name.size(), name) == 0) return part.back();
    return 0;
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (!text.empty()) {
        const size_t end = text.find(separator);
        if (end != 0) parts.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos) break;
        text.remove_prefix(end + 1);
    }
    return parts;
}

const Arch* find_arch(std::string_view target) {
    for (const Arch& arch : k_archs)
        if (arch.m_name == processor(target)) return &arch;
    return nullptr;
}

bool runs_on(std::string_view target, std::string_view device) {
    const Arch* arch = find_arch(device);
    if (arch == nullptr) return false;
    if (processor(target) == "amdgcnspirv") return true;
    if (processor(target) != arch->m_name && (arch->m_generic.empty() || processor(target) != arch->m_generic))
        return false;
    for (const char* name : {"xnack", "sramecc"}) {
        const char wanted = feature(target, name);
        const char present = feature(device, name);
        if (wanted != 0 && present != 0 && wanted != present) return false;
    }
    return true;
}

}  // namespace fake_rocm
