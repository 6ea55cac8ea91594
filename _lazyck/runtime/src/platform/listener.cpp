#include "platform/listener.h"

#include <chrono>
#include <string>
#include <utility>

#include "platform/messages.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_most_messages = 10'000;

}  // namespace

bool Listener::open() {
    {
        const std::lock_guard<std::mutex> guard(m_queue->mutex);
        m_queue->is_open = true;
    }
    ensure_thread();
    const std::lock_guard<std::mutex> guard(m_queue->mutex);
    if (!m_queue->has_thread) m_queue->is_open = false;
    return m_queue->is_open;
}

bool Listener::close(double seconds) {
    std::unique_lock<std::mutex> lock(m_queue->mutex);
    m_queue->is_open = false;
    m_queue->changed.notify_all();
    if (!m_queue->has_thread || m_queue->teller == std::this_thread::get_id()) return true;
    const auto is_over = [&] { return m_queue->messages.empty() && !m_queue->is_telling; };
    if (m_queue->changed.wait_for(lock, std::chrono::duration<double>(seconds), is_over)) return true;
    m_queue->messages.clear();
    return false;
}

bool Listener::is_open() {
    const std::lock_guard<std::mutex> guard(m_queue->mutex);
    return m_queue->is_open;
}

void Listener::post(Message message) {
    {
        const std::lock_guard<std::mutex> guard(m_queue->mutex);
        if (!m_queue->is_open) return;
        if (m_queue->messages.size() >= k_most_messages) {
            ++m_queue->dropped;
            return;
        }
        m_queue->messages.push_back(std::move(message));
    }
    m_queue->changed.notify_all();
}

void Listener::ensure_thread() {
    {
        const std::lock_guard<std::mutex> guard(m_queue->mutex);
        if (!m_queue->is_open || m_queue->has_thread) return;
        m_queue->has_thread = true;
    }
    if (start_thread([queue = m_queue] { run(queue); })) return;
    const std::lock_guard<std::mutex> guard(m_queue->mutex);
    m_queue->has_thread = false;
}

void Listener::run(const std::shared_ptr<Queue>& queue) {
    std::unique_lock<std::mutex> lock(queue->mutex);
    queue->teller = std::this_thread::get_id();
    while (true) {
        queue->changed.wait(lock, [&] { return !queue->messages.empty() || !queue->is_open; });
        if (queue->messages.empty()) break;
        const Message message = std::move(queue->messages.front());
        queue->messages.pop_front();
        const std::size_t dropped = std::exchange(queue->dropped, 0);
        queue->is_telling = true;
        lock.unlock();
        if (dropped > 0)
            say(Level::warn, "the listener is too slow: it missed " + std::to_string(dropped) +
                                 (dropped == 1 ? " event" : " events"));
        message();
        lock.lock();
        queue->is_telling = false;
        queue->changed.notify_all();
    }
    queue->has_thread = false;
    queue->teller = std::thread::id();
    queue->changed.notify_all();
}

void Listener::before_fork() { m_queue->mutex.lock(); }

void Listener::after_fork_in_parent() { m_queue->mutex.unlock(); }

// The parent's thread does not exist in the child, and the parent reports the events that were
// still queued.
void Listener::after_fork_in_child() {
    const bool was_open = m_queue->is_open;
    static_cast<void>(new std::shared_ptr<Queue>(m_queue));  // leaked, since its waiters are gone
    m_queue = std::make_shared<Queue>();
    m_queue->is_open = was_open;
}

}  // namespace lazyck::rt
