#include "store/job_permits.h"

#include <iterator>

namespace lazyck::rt {

constexpr unsigned k_enough_to_pay = 4;  // compiles after which a preamble has paid off

void JobPermits::acquire(const std::string& blob) {
    std::unique_lock<std::mutex> lock(m_state->mutex);
    ++m_state->waiting;
    m_state->changed.wait(lock, [&] { return m_state->free > 0 && m_state->behind.count(blob) == 0; });
    --m_state->waiting;
    --m_state->free;
    let_pass(blob);
}

void JobPermits::acquire_for_later() {
    std::unique_lock<std::mutex> lock(m_state->mutex);
    m_state->changed.wait(
        lock, [&] { return m_state->free > 0 && (m_state->waiting == 0 || m_state->waiting >= k_enough_to_pay); });
    --m_state->free;
}

void JobPermits::announce(const std::string& blob, const std::string& first) {
    ++m_state->announced;
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    m_state->behind[blob] = first;
}

void JobPermits::needs_none(const std::string& first) {
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    let_pass(first);
}

// Lets blobs that are behind `first` get permits. The caller holds the mutex.
void JobPermits::let_pass(const std::string& first) {
    auto& behind = m_state->behind;
    for (auto each = behind.begin(); each != behind.end();)
        each = each->second == first ? behind.erase(each) : std::next(each);
    m_state->changed.notify_all();
}

bool JobPermits::try_acquire() {
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    if (m_state->free == 0) return false;
    --m_state->free;
    return true;
}

void JobPermits::release() {
    {
        const std::lock_guard<std::mutex> guard(m_state->mutex);
        ++m_state->free;
    }
    m_state->changed.notify_all();
}

void JobPermits::after_fork_in_child() {
    static_cast<void>(m_state.release());
    m_state = std::make_unique<State>(m_count);
}

bool HeldPermit::takes_one_more() {
    const bool has_taken = m_permits.try_acquire();
    m_held += has_taken ? 1 : 0;
    return has_taken;
}

HeldPermit::~HeldPermit() {
    for (unsigned i = 0; i < m_held; ++i) m_permits.release();
}

}  // namespace lazyck::rt
