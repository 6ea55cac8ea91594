#include "library/recorder.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "platform/files.h"
#include "platform/messages.h"
#include "platform/threads.h"

namespace lazyck::rt {

void Recorder::record(const std::string& path) {
    finish();
    const std::string record = path.empty() ? "" : absolute(path);
    bool is_sampled;
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex());
        m_record = record;
        m_order = 0;
        for (auto& each : m_core.states.all()) each.second.order = 0;
        if (m_record.empty()) return;
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
            const std::lock_guard<std::mutex> guard(m_core.states.mutex());
            if (is_recording()) sample();
        }
    };
    if (start_thread(work)) return;
    say(Level::warn,
        "cannot start a thread: the record '" + record + "' says which blobs are called, but not how often");
    const std::lock_guard<std::mutex> guard(m_core.states.mutex());
    m_is_sampled = false;
}

// The caller must hold the mutex.
void Recorder::sample() {
    for (const auto& each : m_core.states.all()) {
        if (!each.second.is_loaded) continue;
        store_slots(m_core.blobs.row(each.first), each.second.lazy);
    }
}

std::optional<FirstCall> Recorder::count_call(BlobId blob, BlobState& state) {
    if (!is_recording()) return std::nullopt;
    ++state.calls;
    if (state.order != 0) return std::nullopt;
    state.order = ++m_order;
    return FirstCall{m_record, profile_row(blob, state)};
}

ProfileRow Recorder::profile_row(BlobId blob, const BlobState& state) const {
    const ManifestRow at = m_core.blobs.row(blob);
    ProfileRow row;
    row.blob = at.manifest.blob(at.index).name;
    row.library = at.manifest.library();
    row.archs = state.archs;
    row.order = state.order;
    row.calls = state.calls;
    if (!at.manifest.has_slots()) row.kernel = kernel_of(at.manifest.blob(at.index));
    if (state.entry) {
        row.seconds = state.entry->seconds;
        row.peak_kib = state.entry->peak_kib;
    }
    return row;
}

void Recorder::finish() {
    std::vector<ProfileRow> rows;
    std::string path;
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex());
        if (!is_recording()) return;
        path = m_record;
        for (auto& each : m_core.states.all()) {
            if (each.second.order != 0 && each.second.calls > 1) rows.push_back(profile_row(each.first, each.second));
            each.second.calls = 0;
        }
    }
    append_profile(path, rows);
}

}  // namespace lazyck::rt
