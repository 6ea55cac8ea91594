#include "library/host_units.h"

#include "base/failure.h"
#include "bundle/units.h"

namespace lazyck::rt {

const HostUnit& HostUnits::of(const Handle& handle) {
    if (handle.table[0] != '\0') return of_blob(blob_of_name(handle.source), handle.table);
    const auto& all = m_in_manifest.get([this] {
        std::unordered_map<std::string, HostUnit> units;
        const ManifestView& manifest = m_blobs.manifest();
        for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) {
            const BlobRow blob = manifest.blob(i);
            if (blob.kernel[0] == '\0') continue;
            HostUnit& unit = units[host_unit_of(blob)];
            if (kernel_of(blob)[0] == '*')
                unit.whole = m_blobs.first() + i;
            else
                unit.kernels.emplace(manifest.symbol_name(blob.first_symbol), m_blobs.first() + i);
        }
        return units;
    });
    const auto found = all.find(handle.source);
    if (found == all.end())
        fail("lazyck: " + m_blobs.path() + ": its manifest does not have the kernels that it registers");
    return found->second;
}

const HostUnit& HostUnits::of_blob(BlobId blob, const char* table) {
    auto& units =
        m_of_blobs.get([this] { return std::make_unique<Lasting<HostUnit>[]>(m_blobs.first() + m_blobs.count()); });
    return units[static_cast<std::uint32_t>(blob)].get([&] {
        const ManifestView& all = m_blobs.parts_by(blob, table);
        HostUnit unit;
        unit.whole = Blobs::part_of(blob, ManifestView::k_whole_device);
        for (std::uint32_t i = ManifestView::k_first_kernel; i < all.blob_count(); ++i)
            unit.kernels.emplace(all.symbols_of(all.blob(i)).at(0), Blobs::part_of(blob, i));
        return unit;
    });
}

BlobId HostUnits::blob_of_name(const std::string& name) const {
    for (BlobId i = 0; i < m_blobs.count(); ++i) {
        if (name == m_blobs.name(i)) return m_blobs.first() + i;
    }
    fail("lazyck: " + m_blobs.path() + ": its manifest does not have the blob '" + visible(name) +
         "', whose kernels it registers");
}

}  // namespace lazyck::rt
