#include "library/states.h"

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

}  // namespace lazyck::rt
