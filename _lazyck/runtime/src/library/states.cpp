#include "library/states.h"

#include <dlfcn.h>

#include <chrono>

namespace lazyck::rt {

bool States::is_loaded(BlobId blob) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    return m_states[blob].is_loaded;
}

bool States::drain(double seconds) {
    std::unique_lock<std::mutex> lock(m_mutex);
    const auto is_idle = [&] { return m_in_flight == 0; };
    if (seconds < 0) {
        m_changed->wait(lock, is_idle);
    } else if (seconds > 0) {
        m_changed->wait_for(lock, std::chrono::duration<double>(seconds), is_idle);
    }
    return is_idle();
}

void States::after_fork_in_child() {
    for (auto& each : m_states) each.second.calls = 0;
    m_in_flight = 0;
    ++m_generation;
    static_cast<void>(m_changed.release());  // its waiters are gone: destroying it would wait for them
    m_changed = std::make_unique<std::condition_variable>();
}

Activity::Activity(States& states) : m_states(states) {
    const std::lock_guard<std::mutex> guard(states.m_mutex);
    ++states.m_in_flight;
    m_generation = states.m_generation;
}

Activity::~Activity() {
    const std::lock_guard<std::mutex> guard(m_states.m_mutex);
    if (m_generation != m_states.m_generation) return;
    if (--m_states.m_in_flight == 0) m_states.m_changed->notify_all();
}

void stay_loaded() {
    Dl_info info;
    if (dladdr(static_cast<const void*>(lazyck_manifest), &info) == 0 || info.dli_fname == nullptr) return;
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

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
