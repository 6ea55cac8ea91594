#include "library/blobs.h"

#include <map>
#include <utility>

#include "base/failure.h"
#include "bundle/arch.h"
#include "platform/elf_view.h"

namespace lazyck::rt {

Blobs::Blobs(const Config& config, std::string path)
    : m_path(std::move(path)),
      m_archs(config.archs),
      m_manifest(lazyck_manifest, static_cast<std::size_t>(lazyck_manifest_end - lazyck_manifest),
                 "embedded manifest") {
    if (m_manifest.machine() != own_machine()) {
        fail("lazyck: " + m_path + ": its manifest is for " + machine_name(m_manifest.machine()) +
             ", but this process runs on " + machine_name(own_machine()));
    }
    if (m_manifest.symbol_count() != lazyck_slot_count) {
        fail("lazyck: " + m_path + ": its manifest describes " + std::to_string(m_manifest.symbol_count()) +
             " symbols, but it has " + std::to_string(lazyck_slot_count) + " slots");
    }
}

ManifestRow Blobs::row(BlobId blob) const {
    const auto own = static_cast<std::uint32_t>(blob), part = static_cast<std::uint32_t>(blob >> 32);
    if (part == 0) return {m_manifest, own};
    const auto make = [&] { return m_manifest.parts(own, {}); };
    Parts& all = parts(own);
    // The number of a part with device code comes from these rows, so they exist.
    return {part - 1 == ManifestView::k_host_unit ? all.plain.get(make) : all.full.get(make), part - 1};
}

Blobs::Parts& Blobs::parts(BlobId blob) const {
    return m_parts.get([&] { return std::make_unique<Parts[]>(count()); })[static_cast<std::uint32_t>(blob)];
}

const char* Blobs::name(BlobId index) const { return index < count() ? m_manifest.blob(index).name : nullptr; }

std::optional<BlobId> Blobs::find(std::string_view name) const {
    const auto& all = m_by_name.get([this] {
        std::unordered_map<std::string_view, BlobId> ids;
        for (BlobId i = 0; i < count(); ++i) ids.emplace(this->name(i), i);
        return ids;
    });
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(found->second);
}

const HostUnit& Blobs::host_unit(const std::string& source, const char* table) const {
    if (table[0] != '\0') {
        if (const auto blob = find(source)) return host_unit_of_blob(*blob, table);
        fail("lazyck: " + m_path + ": its manifest does not have the blob '" + visible(source) +
             "', whose kernels it registers");
    }
    const auto& all = m_host_units.get([this] {
        std::unordered_map<std::string, HostUnit> units;
        for (std::uint32_t i = 0; i < manifest().blob_count(); ++i) {
            const BlobRow blob = manifest().blob(i);
            if (blob.kernel[0] == '\0') continue;
            HostUnit& unit = units[host_unit_of(blob)];
            if (kernel_of(blob)[0] == '*')
                unit.whole = i;
            else
                unit.kernels.emplace(manifest().symbol_name(blob.first_symbol), i);
        }
        return units;
    });
    const auto found = all.find(source);
    if (found == all.end()) fail("lazyck: " + m_path + ": its manifest does not have the kernels that it registers");
    return found->second;
}

const HostUnit& Blobs::host_unit_of_blob(BlobId blob, const char* table) const {
    return parts(blob).host_unit.get([&] {
        const ManifestRow at = row(blob);
        const ManifestView& all =
            parts(blob).full.get([&] { return at.manifest.parts(at.index, lines_of_table(table)); });
        HostUnit unit;
        unit.whole = part_of(blob, ManifestView::k_whole_device);
        for (std::uint32_t i = ManifestView::k_first_kernel; i < all.blob_count(); ++i)
            unit.kernels.emplace(all.symbols_of(all.blob(i)).at(0), part_of(blob, i));
        return unit;
    });
}

BlobId Blobs::whole_of(BlobId kernel) const {
    if (kernel >> 32 != 0) return part_of(static_cast<std::uint32_t>(kernel), ManifestView::k_whole_device);
    return host_unit(host_unit_of(row(kernel).blob()), "").whole;
}

Strings Blobs::archs_here(BlobId blob) const {
    const ManifestRow at = row(blob);
    return archs_for(at.manifest, at.blob().recipe, m_archs, true);
}

std::vector<Wanted> Blobs::wanted_here(const std::vector<BlobId>& blobs) const {
    std::vector<Wanted> all;
    std::map<std::pair<const ManifestView*, std::uint32_t>, std::shared_ptr<const Strings>> known;  // by recipe
    for (const BlobId blob : blobs) {
        const ManifestRow at = row(blob);
        const auto [row, is_new] = known.try_emplace({&at.manifest, at.blob().recipe});
        if (is_new) {
            try {
                row->second = std::make_shared<const Strings>(archs_here(blob));
            } catch (const CompileError&) {
                // No arch can be determined. The thread that makes the blob ready reports it.
            }
        }
        all.push_back({blob, row->second, false, "", ""});
    }
    return all;
}

}  // namespace lazyck::rt
