#include "prefetch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "threads.h"

namespace lazyck::rt {

Prefetch::Prefetch(std::vector<double> seconds, unsigned workers, Work work)
    : m_state(std::make_shared<State>()), m_process(getpid()) {
    const std::size_t count = seconds.size();
    m_state->progress.total = count;
    m_state->seconds = std::move(seconds);
    m_state->work = std::move(work);
    const std::size_t threads = std::min<std::size_t>(count, std::max(1U, workers));
    m_state->progress.running = threads;
    m_state->progress.is_over = threads == 0;
    std::size_t started = 0;
    while (started < threads && start_thread([state = m_state] { run(state); })) ++started;
    if (started == threads) return;
    // With fewer threads, the job takes longer. Without any, all blobs are left to the callers' own
    // calls.
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    m_state->progress.running -= threads - started;
    m_state->progress.is_over = m_state->progress.running == 0;
}

void Prefetch::run(const std::shared_ptr<State>& state) {
    std::unique_lock<std::mutex> lock(state->mutex);
    while (!state->is_cancelled) {
        const bool is_first_pass = state->next < state->progress.total;
        if (!is_first_pass && state->to_compile.empty()) break;
        std::size_t index = state->next;
        if (is_first_pass) {
            ++state->next;
        } else {
            index = state->to_compile.back();
            state->to_compile.pop_back();
        }
        std::string error;
        bool is_ready = false;
        lock.unlock();
        try {
            is_ready = state->work(index, !is_first_pass);
        } catch (const std::exception& e) {
            error = e.what();
        } catch (...) {
            error = "lazyck: unknown error";
        }
        lock.lock();
        if (!is_ready && error.empty()) {
            const auto place = std::upper_bound(state->to_compile.begin(), state->to_compile.end(), index,
                                                [&](std::size_t one, std::size_t other) {
                                                    // Of two with equal or unknown times, the one
                                                    // that was requested first is taken first.
                                                    const double a = state->seconds[one], b = state->seconds[other];
                                                    return a != b ? a < b : one > other;
                                                });
            state->to_compile.insert(place, index);
            continue;
        }
        PrefetchProgress& progress = state->progress;
        ++(is_ready ? progress.ready : progress.failed);
        if (!is_ready && progress.error.empty()) progress.error = error;
        state->changed.notify_all();
    }
    if (--state->progress.running == 0) state->progress.is_over = true;
    state->changed.notify_all();
}

PrefetchProgress Prefetch::progress() const { return wait(0); }

PrefetchProgress Prefetch::wait(double seconds) const {
    if (getpid() != m_process) {
        PrefetchProgress nothing;
        nothing.is_over = true;
        return nothing;
    }
    std::unique_lock<std::mutex> lock(m_state->mutex);
    const auto is_over = [&] { return m_state->progress.is_over; };
    if (seconds < 0) {
        m_state->changed.wait(lock, is_over);
    } else if (seconds > 0) {
        m_state->changed.wait_for(lock, std::chrono::duration<double>(seconds), is_over);
    }
    return m_state->progress;
}

void Prefetch::cancel() {
    if (getpid() != m_process) return;
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    m_state->is_cancelled = true;
}

}  // namespace lazyck::rt
