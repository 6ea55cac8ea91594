#include "library/core.h"

#include <dlfcn.h>

#include <chrono>

#include "platform/files.h"
#include "platform/messages.h"
#include "platform/threads.h"

namespace lazyck::rt {

bool States::is_loaded(BlobId blob) {
    const std::lock_guard<std::mutex> guard(mutex);
    return all[blob].is_loaded;
}

bool States::drain(double seconds) {
    std::unique_lock<std::mutex> lock(mutex);
    const auto is_idle = [&] { return in_flight == 0; };
    return changed.wait(lock, is_idle, seconds);
}

void States::after_fork_in_child() {
    for (auto& each : all) each.second.calls = 0;
    in_flight = 0;
    ++generation;
}

Activity::Activity(States& states) : m_states(states) {
    const std::lock_guard<std::mutex> guard(states.mutex);
    ++states.in_flight;
    m_generation = states.generation;
}

Activity::~Activity() {
    const std::lock_guard<std::mutex> guard(m_states.mutex);
    if (m_generation != m_states.generation) return;
    if (--m_states.in_flight == 0) m_states.changed.tell();
}

void stay_loaded() {
    Dl_info info;
    if (dladdr(static_cast<const void*>(lazyck_manifest), &info) == 0 || info.dli_fname == nullptr) return;
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

std::vector<void*> read_slots(const ManifestRow& at) {
    std::vector<void*> functions;
    const BlobRow blob = at.blob();
    for (std::uint32_t i = 0; at.manifest.has_slots() && i < blob.symbol_count; ++i)
        functions.push_back(lazyck_slots[blob.first_symbol + i].load(std::memory_order_relaxed));
    return functions;
}

void store_slots(const ManifestRow& at, const std::vector<void*>& functions) {
    if (!at.manifest.has_slots()) return;
    const BlobRow blob = at.blob();
    for (std::uint32_t i = 0; i < blob.symbol_count; ++i)
        lazyck_slots[blob.first_symbol + i].store(functions[i], std::memory_order_release);
}

void ProfileRecorder::start(const std::string& path) {
    finish();
    const std::string profile = path.empty() ? "" : absolute(path);
    bool is_sampled;
    {
        const std::lock_guard<std::mutex> guard(m_states.mutex);
        m_profile = profile;
        m_order = 0;
        for (auto& each : m_states.all) each.second.order = 0;
        if (m_profile.empty()) return;
        sample();
        is_sampled = std::exchange(m_is_sampled, true);
    }
    if (is_sampled) return;
    // Once a second, the slots of the blobs that were called are made lazy again. A blob's next
    // call is then seen, at the cost of one slow call each second. All other calls cost nothing.
    stay_loaded();
    const auto work = [this] {
        while (true) {
            std::this_thread::sleep_for(std::chrono::seconds(1));
            const std::lock_guard<std::mutex> guard(m_states.mutex);
            if (is_recording()) sample();
        }
    };
    if (start_thread(work)) return;
    log_message(Level::warn,
                "cannot start a thread: the profile '" + profile + "' says which blobs are called, but not how often");
    const std::lock_guard<std::mutex> guard(m_states.mutex);
    m_is_sampled = false;
}

// The caller must hold the mutex.
void ProfileRecorder::sample() {
    for (const auto& each : m_states.all) {
        if (!each.second.is_loaded) continue;
        store_slots(m_blobs.row(each.first), each.second.lazy);
    }
}

std::optional<FirstCall> ProfileRecorder::count_call(BlobId blob, BlobState& state) {
    if (!is_recording()) return std::nullopt;
    ++state.calls;
    if (state.order != 0) return std::nullopt;
    state.order = ++m_order;
    return FirstCall{m_profile, profile_row(blob, state)};
}

ProfileRow ProfileRecorder::profile_row(BlobId blob, const BlobState& state) const {
    const ManifestRow at = m_blobs.row(blob);
    ProfileRow row;
    row.blob = at.blob().name;
    row.library = at.manifest.library();
    row.archs = state.archs;
    row.order = state.order;
    row.calls = state.calls;
    if (!at.manifest.has_slots()) row.kernel = kernel_of(at.blob());
    if (state.entry) {
        row.seconds = state.entry->seconds;
        row.peak_kib = state.entry->peak_kib;
    }
    return row;
}

void ProfileRecorder::finish() {
    std::vector<ProfileRow> rows;
    std::string path;
    {
        const std::lock_guard<std::mutex> guard(m_states.mutex);
        if (!is_recording()) return;
        path = m_profile;
        for (auto& each : m_states.all) {
            if (each.second.order != 0 && each.second.calls > 1) rows.push_back(profile_row(each.first, each.second));
            each.second.calls = 0;
        }
    }
    append_profile(path, rows);
}

}  // namespace lazyck::rt
