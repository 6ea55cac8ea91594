#include "library/readiness.h"

#include <exception>
#include <map>
#include <string>
#include <utility>

#include "base/failure.h"
#include "history/profile.h"
#include "lazyck_abi.h"
#include "library/kernels.h"
#include "platform/caller.h"
#include "platform/gpu.h"
#include "platform/messages.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_most_called_together = 4;
// FlashAttention's forward file takes as long as five to six of its kernels one by one, llama.cpp's
// mmq as five.
constexpr unsigned k_kernels_for_a_source = 5;

// Throws CompileError if a graph is being recorded. A first call would spoil it, and the program
// would be told so much later.
void check_no_capture(const ManifestView& manifest, const BlobRow& blob, const std::string& own) {
    const std::string runtime = capturing_runtime(manifest.recipe_toolchain(blob.recipe));
    if (runtime.empty()) return;
    fail("lazyck: blob '" + visible(blob.name) + "' is called for the first time while a " + runtime +
             " stream is being captured, when it can be neither compiled nor loaded; call it once before the capture, "
             "or "
             "lazyck_prefetch(\"" +
             blob.name + "\")\n  to compile it ahead of time: " +
             shell_join({"lazyck", "prebuild", "build", "--manifest", own, blob.name}),
         {blob.name, "", ""});
}

}  // namespace

void Readiness::make_ready(const Wanted& wanted) {
    if (!wanted.part.empty()) {
        ready_part(wanted);
        return;
    }
    if (m_core.states.is_loaded(wanted.blob)) {
        // The host unit is loaded, and all of the blob is wanted, so the code that it may launch is
        // made ready, too.
        if (const HostUnit* const unit = wanted.is_called ? nullptr : loaded_host_unit(wanted.blob))
            make_ready({unit->whole, wanted.archs, true, "", ""});
        return;
    }
    const ManifestRow at = m_core.blobs.row(wanted.blob);
    check_no_capture(at.manifest, at.blob(), m_core.blobs.path());
    const Strings archs = wanted.archs ? *wanted.archs : m_core.blobs.archs_here(wanted.blob);
    // Until this is destroyed, other blobs may wait until the called one has got a compile permit.
    const std::shared_ptr<void> need(
        nullptr, [&](void*) { m_core.store.permits.needs_none(wanted.call.from == nullptr ? "" : at.blob().name); });
    std::shared_ptr<const Entry> entry = find_entry(m_core, wanted.blob, archs, wanted.is_called);
    if (!entry) {
        begin_siblings(wanted.call);
        entry = obtain_entry(m_core, wanted.blob, archs, wanted.is_called);
    }
    const std::string label = archs.empty() ? "any" : join(archs, "+");
    try {
        load_entry(m_core, wanted.blob, *entry, label);
    } catch (const RefusedByLoader& e) {
        // It may have been made for another library, or a compiler made it that is no more. What is
        // compiled now is right, or its error is.
        if (entry->origin == LAZYCK_ORIGIN_COMPILED || m_core.store.jit.is_forbidden()) throw;
        const std::string what = e.what();
        log_message(Level::warn, what.substr(8, what.find('\n') - 8) + "; making it again");
        m_core.store.set_aside(at, *entry);
        entry = obtain_entry(m_core, wanted.blob, archs, wanted.is_called);
        load_entry(m_core, wanted.blob, *entry, label);
    }
    if (!is_device_code(at.blob())) return;
    const void* image = nullptr;
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex);
        image = m_core.states.all[wanted.blob].functions.at(0);
    }
    if (is_whole_mark(image)) make_ready({m_core.blobs.whole_of(wanted.blob), wanted.archs, true, "", ""});
}

void Readiness::ready_for_call(const Wanted& wanted) {
    const Activity activity(m_core.states);
    const auto is_obtained = [&] {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex);
        return m_core.states.all[wanted.blob].entry != nullptr;
    };
    const bool may_be_late = m_core.store.jit.is_watching() && !is_obtained();
    const double begin = now_seconds();
    make_ready(wanted);
    if (may_be_late) report_late(wanted.blob, now_seconds() - begin);
}

// Warns that a call waited for a blob's compile, unless the entry came from a cache. Each blob is
// reported once.
void Readiness::report_late(BlobId blob, double seconds) {
    const ManifestRow at = m_core.blobs.row(blob);
    std::string archs;
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex);
        BlobState& state = m_core.states.all[blob];
        if (!state.entry || state.entry->origin != LAZYCK_ORIGIN_COMPILED || std::exchange(state.is_reported, true))
            return;
        archs = state.archs;
    }
    const Subject subject = subject_of(at.manifest, at.blob(), archs);
    log_message(Level::warn,
                "a call waited " + seconds_text(seconds) + " for the compile of " + subject.words +
                    " after warm-up was over (" LAZYCK_ENV_JIT "=warn); add it to the warm-up",
                {"late", subject, seconds, "compiled"});
}

bool Readiness::is_at_hand(const Wanted& wanted) {
    if (!wanted.part.empty()) return false;
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex);
        const BlobState& state = m_core.states.all[wanted.blob];
        if (state.entry && (wanted.is_called || !state.entry->is_host_unit)) return true;
        if (state.is_busy) return false;
    }
    return is_entry_cached(m_core, wanted.blob, wanted.archs ? *wanted.archs : m_core.blobs.archs_here(wanted.blob),
                           wanted.is_called);
}

// Returns the host unit of a loaded blob, or null if all of the blob is loaded, or if it has no
// device code.
const HostUnit* Readiness::loaded_host_unit(BlobId blob) {
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex);
        const BlobState& state = m_core.states.all[blob];
        if (!state.entry || !state.entry->is_host_unit) return nullptr;
    }
    const ManifestRow at = m_core.blobs.row(blob);
    const char* const table = table_of(at.blob().name);
    return table[0] == '\0' ? nullptr : &m_core.blobs.host_unit_of_blob(blob, table);
}

void Readiness::load_parts(BlobId blob) {
    std::vector<Wanted> waiting;
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex);
        const auto found = m_parts_to_load.find(blob);
        if (found == m_parts_to_load.end()) return;
        waiting = std::move(found->second);
        m_parts_to_load.erase(found);
    }
    for (const Wanted& each : waiting) ready_part(each);
}

// Makes a kernel that a profile names ready. The blob's host unit tells which kernels there are. A
// kernel that it does not have does not belong to this build, and is ignored.
void Readiness::ready_part(const Wanted& wanted) {
    const ManifestRow at = m_core.blobs.row(wanted.blob);
    // The kernel is compiled at the same time as its host unit, which another thread makes. That
    // thread then loads the kernel.
    if (!wanted.line.empty() && !m_core.states.is_loaded(wanted.blob)) {
        const ManifestView kernel = at.manifest.kernel(at.index, wanted.line);
        if (m_core.store.goes_by_kernel(at)) {
            const Strings archs = wanted.archs ? *wanted.archs : m_core.blobs.archs_here(wanted.blob);
            const auto obtain = [&] {
                for (const Strings& each : archs_of_entries(kernel.blob(0), archs))
                    m_core.store.obtain({kernel, 0}, each);
            };
            run_apart(obtain, [&](const std::string&) { m_core.store.caches(kernel)->hold(); });
        }
        const std::lock_guard<std::mutex> guard(m_core.states.mutex);
        if (!m_core.states.all[wanted.blob].is_loaded) {
            m_parts_to_load[wanted.blob].push_back(wanted);
            return;
        }
    }
    make_ready({wanted.blob, wanted.archs, true, "", ""});
    const HostUnit* const unit = loaded_host_unit(wanted.blob);
    if (unit == nullptr) return;
    for (const auto& kernel : unit->kernels) {
        const ManifestRow part = m_core.blobs.row(kernel.second);
        if (part.manifest.blob(part.index).name == wanted.part) make_ready({kernel.second, wanted.archs, true, "", ""});
    }
}

// Returns the blobs that the calling function also calls: instances of other templates, each the
// only instance of its template there. Several instances of one template are usually alternatives,
// of which only one will be called.
std::vector<BlobId> Readiness::siblings_of(const Call& call) {
    const ManifestView& manifest = m_core.blobs.manifest();
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
        if (each.first != own && is_only(each.first)) siblings.push_back(m_core.blobs.of_slot(each.second[0]));
    }
    return siblings;
}

// Makes each other blob ready that the function behind `call` calls, on a thread of its own. A blob
// is begun only once.
void Readiness::begin_siblings(const Call& call) {
    if (call.from == nullptr || m_core.store.config.jobs < 2 || m_core.store.jit.is_forbidden()) return;
    for (const Wanted& sibling : m_core.blobs.wanted_here(siblings_of(call))) {
        {
            const std::lock_guard<std::mutex> guard(m_core.states.mutex);
            m_begun.insert(m_core.blobs.of_slot(call.slot));
            if (m_core.states.all[sibling.blob].is_loaded || !m_begun.insert(sibling.blob).second) continue;
        }
        stay_loaded();
        const auto name_of = [&](BlobId blob) { return std::string(m_core.blobs.name(blob)); };
        m_core.store.permits.announce(name_of(sibling.blob), name_of(m_core.blobs.of_slot(call.slot)));
        const bool has_begun = start_thread([this, sibling, activity = std::make_shared<Activity>(m_core.states)] {
            try {
                make_ready(sibling);
            } catch (const std::exception&) {
                // If a call needs this blob, that call gets the error.
            }
            m_core.store.permits.withdraw();
        });
        if (!has_begun) m_core.store.permits.withdraw();
    }
}

// A kernel by itself costs most of what the first one of a whole source does: its headers. A
// program that has used several kernels may use all of them. So the whole source is compiled in the
// background once the kernels have cost about as much. A program that stops there has paid at most
// twice (the ski rental problem).
void Readiness::expect_whole_source(BlobId kernel, BlobId whole, std::size_t kernels) {
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex);
        const BlobState& state = m_core.states.all[kernel];
        if (!state.entry || state.entry->origin != LAZYCK_ORIGIN_COMPILED || kernels < 2 * k_kernels_for_a_source)
            return;
        if (++m_compiled_kernels[whole] != k_kernels_for_a_source) return;
    }
    stay_loaded();
    expect(m_core.blobs.wanted_here({whole}));
}

// Makes blobs ready in the background, on one thread.
void Readiness::expect(const std::vector<Wanted>& wanted) {
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex);
        m_expected.insert(m_expected.end(), wanted.begin(), wanted.end());
        if (m_is_expecting || m_expected.empty()) return;
        m_is_expecting = true;
    }
    if (start_thread([this, activity = std::make_shared<Activity>(m_core.states)] { ready_expected(); })) return;
    const std::lock_guard<std::mutex> guard(m_core.states.mutex);
    m_is_expecting = false;
    m_expected.clear();  // without a thread, nothing is made ready
}

// Makes expected blobs ready, one at a time. A guess may be wrong, so a blob is compiled only while
// another compile permit stays free for calls.
void Readiness::ready_expected() {
    while (true) {
        Wanted next;
        {
            const std::lock_guard<std::mutex> guard(m_core.states.mutex);
            m_is_expecting = !m_expected.empty();
            if (!m_is_expecting) return;
            next = m_expected.front();
            m_expected.pop_front();
        }
        try {
            if (is_at_hand(next) || (m_core.store.config.jobs > 1 && !m_core.store.jit.is_forbidden()))
                make_ready(next);
        } catch (const std::exception&) {
            // If a call needs this blob, that call gets the error.
        }
    }
}

void Readiness::after_fork_in_child() {
    m_expected.clear();
    m_is_expecting = false;
}

}  // namespace lazyck::rt
