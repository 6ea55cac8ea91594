#include "library/slots.h"

#include "library/stubs.h"

namespace lazyck::rt {

std::vector<void*> read_slots(const ManifestRow& at) {
    std::vector<void*> functions;
    const BlobRow blob = at.manifest.blob(at.index);
    for (std::uint32_t i = 0; at.manifest.has_slots() && i < blob.symbol_count; ++i)
        functions.push_back(lazyck_slots[blob.first_symbol + i].load(std::memory_order_relaxed));
    return functions;
}

void store_slots(const ManifestRow& at, const std::vector<void*>& functions) {
    if (!at.manifest.has_slots()) return;
    const BlobRow blob = at.manifest.blob(at.index);
    for (std::uint32_t i = 0; i < blob.symbol_count; ++i)
        lazyck_slots[blob.first_symbol + i].store(functions[i], std::memory_order_release);
}

}  // namespace lazyck::rt
