#include "library/siblings.h"

#include <exception>
#include <map>
#include <string>

#include "library/activity.h"
#include "library/stubs.h"
#include "platform/caller.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_most_called_together = 4;

}  // namespace

// Returns the blobs that the calling function calls besides: instances of other templates, each the
// only instance of its template there. Several instances of one template are usually alternatives,
// of which only one will be called.
std::vector<BlobId> Siblings::siblings_of(const Call& call) {
    const ManifestView& manifest = m_blobs.manifest();
    const auto slot_of = [&](std::string_view name) -> std::int64_t {
        const auto& slots = m_slots_by_name.get([&] {
            std::unordered_map<std::string_view, std::uint32_t> all;
            for (std::uint32_t i = 0; i < lazyck_slot_count; ++i) all.emplace(manifest.symbol_name(i), i);
            return all;
        });
        const auto found = slots.find(name);
        return found == slots.end() ? -1 : static_cast<std::int64_t>(found->second);
    };
    std::map<std::string_view, std::vector<std::uint32_t>> by_template;
    for (const std::uint32_t slot : slots_called_beside(call.from, k_most_called_together, slot_of))
        by_template[template_of(manifest.symbol_name(slot))].push_back(slot);
    std::vector<BlobId> siblings;
    const std::string_view own = template_of(manifest.symbol_name(call.slot));
    const auto is_only = [&](std::string_view name) {
        const auto found = by_template.find(name);
        return !name.empty() && found != by_template.end() && found->second.size() == 1;
    };
    if (!is_only(own) || by_template[own][0] != call.slot) return siblings;
    for (const auto& each : by_template) {
        if (each.first != own && is_only(each.first)) siblings.push_back(m_blobs.of_slot(each.second[0]));
    }
    return siblings;
}

void Siblings::begin(const Call& call, const MakeReady& make_ready) {
    if (call.from == nullptr || m_store.shop.config.jobs < 2 || m_store.shop.jit.is_forbidden()) return;
    for (const Wanted& sibling : m_blobs.wanted_here(siblings_of(call))) {
        {
            const std::lock_guard<std::mutex> guard(m_states.mutex());
            m_begun.insert(m_blobs.of_slot(call.slot));
            if (m_states.of(sibling.blob).is_loaded || !m_begun.insert(sibling.blob).second) continue;
        }
        stay_loaded();
        const auto name_of = [&](BlobId blob) { return std::string(m_blobs.name(blob - m_blobs.first())); };
        m_store.shop.permits.announce(name_of(sibling.blob), name_of(m_blobs.of_slot(call.slot)));
        const bool has_begun =
            start_thread([this, sibling, make_ready, activity = std::make_shared<Activity>(m_states)] {
                try {
                    make_ready(sibling);
                } catch (const std::exception&) {
                    // If a call needs this blob, that call gets the error.
                }
                m_store.shop.permits.withdraw();
            });
        if (!has_begun) m_store.shop.permits.withdraw();
    }
}

}  // namespace lazyck::rt
