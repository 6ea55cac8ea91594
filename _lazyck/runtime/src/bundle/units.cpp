#include "bundle/units.h"

#include <cstring>

namespace lazyck::rt {

std::string kernel_of(const BlobRow& blob) {
    const char* const tab = std::strchr(blob.kernel, '\t');
    return tab == nullptr ? "" : tab + 1;
}

std::string host_unit_of(const BlobRow& blob) {
    const char* const tab = std::strchr(blob.kernel, '\t');
    return tab == nullptr ? "" : std::string(blob.kernel, tab);
}

std::vector<Strings> archs_of_entries(const BlobRow& blob, const Strings& archs) {
    const std::string kernel = kernel_of(blob);
    if (archs.size() < 2 || kernel.empty() || kernel == host_unit_of(blob)) return {archs};
    std::vector<Strings> each;
    for (const std::string& arch : archs) each.push_back({arch});
    return each;
}

Subject subject_of(const ManifestView& manifest, const BlobRow& blob, const std::string& arch_label) {
    const std::string kernel = kernel_of(blob);
    const bool is_kernel = !kernel.empty() && kernel[0] != '*' && kernel != host_unit_of(blob);
    return {visible(blob.name) + " for " + arch_label, manifest.library(), blob.name,
            is_kernel ? kernel.substr(0, kernel.find('\t')) : "", arch_label};
}

}  // namespace lazyck::rt
