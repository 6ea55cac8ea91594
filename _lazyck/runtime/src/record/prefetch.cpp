#include "record/prefetch.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "platform/threads.h"

namespace lazyck::rt {

Prefetch::Prefetch(std::vector<double> seconds, unsigned workers, Work work, Expect expect)
    : m_state(std::make_shared<State>()), m_process(getpid()) {
    const std::size_t count = seconds.size();
    m_state->progress.total = count;
    m_state->seconds = std::move(seconds);
    m_state->work = std::move(work);
    m_state->expect = std::move(expect);
    const std::size_t threads = std::min<std::size_t>(count, std::max(1U, workers));
    m_state->progress.running = std::max<std::size_t>(1, threads);
    std::size_t started = 0;
    while (started < threads && start_thread([state = m_state] { run(state); })) ++started;
    // With fewer threads, the job takes longer. Without any, all blobs are left to the callers' own
    // calls.
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    while (started++ < std::max<std::size_t>(1, threads)) m_state->end_thread();
}

// Returns the expected seconds until the job is over, or a negative number if nothing is known. A
// blob of which nothing is known is expected to take as long as the others on average. Blobs that
// were not looked up yet are counted as if they had to be compiled.
double Prefetch::State::left() const {
    if (progress.is_over) return 0;
    double known = spent;
    std::size_t count = compiled;
    for (const double each : seconds) {
        known += each;
        count += each > 0 ? 1 : 0;
    }
    const auto expected = [&](std::size_t i) {
        return seconds[i] > 0 ? seconds[i] : known / static_cast<double>(count);
    };
    if (count == 0) return -1;
    double sum = 0, longest = 0;
    const auto add = [&](double more) {
        sum += std::max(0.0, more);
        longest = std::max(longest, more);
    };
    const auto now = Clock::now();
    for (std::size_t i = next; i < progress.total; ++i) add(expected(i));
    for (const std::size_t i : to_compile) add(expected(i));
    for (const auto& each : compiling)
        add(expected(each.first) - std::chrono::duration<double>(now - each.second).count());
    return std::max(longest, sum / static_cast<double>(std::max<std::size_t>(1, progress.running)));
}

bool Prefetch::State::perform(std::size_t index, bool may_compile, std::string& error) const {
    try {
        return work(index, may_compile);
    } catch (const std::exception& e) {
        error = e.what();
    } catch (...) {
        error = "lazyck: unknown error";
    }
    return false;
}

// The last thread lets go of the work, so that what it holds does not live as long as the job's
// owner. The caller must hold the mutex.
void Prefetch::State::end_thread() {
    if (--progress.running == 0) {
        progress.is_over = true;
        work = nullptr;
        expect = nullptr;
    }
    changed.notify_all();
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
            state->compiling.emplace(index, Clock::now());
        }
        std::string error;
        lock.unlock();
        const bool is_ready = state->perform(index, !is_first_pass, error);
        const bool needs_compile = !is_ready && error.empty();
        const bool is_unknown = needs_compile && state->seconds[index] <= 0;
        const double expected = is_unknown ? state->expect(index) : 0;
        lock.lock();
        if (needs_compile) {
            if (is_unknown) state->seconds[index] = expected;
            // Of two with equal or unknown times, the one that was requested first is taken first.
            const auto is_later = [&](std::size_t one, std::size_t other) {
                const double a = state->seconds[one], b = state->seconds[other];
                return a != b ? a < b : one > other;
            };
            auto& waiting = state->to_compile;
            waiting.insert(std::upper_bound(waiting.begin(), waiting.end(), index, is_later), index);
            continue;
        }
        const auto began = state->compiling.find(index);
        if (began != state->compiling.end()) {
            state->spent += std::chrono::duration<double>(Clock::now() - began->second).count();
            ++state->compiled;
            state->compiling.erase(began);
        }
        PrefetchProgress& progress = state->progress;
        ++(is_ready ? progress.ready : progress.failed);
        if (!is_ready && progress.error.empty()) progress.error = error;
        state->changed.notify_all();
    }
    state->end_thread();
}

PrefetchProgress Prefetch::wait(double seconds) const {
    if (getpid() != m_process) {
        PrefetchProgress nothing;
        nothing.is_over = true;
        nothing.left = 0;
        return nothing;
    }
    std::unique_lock<std::mutex> lock(m_state->mutex);
    const auto is_over = [&] { return m_state->progress.is_over; };
    if (seconds < 0) {
        m_state->changed.wait(lock, is_over);
    } else if (seconds > 0) {
        m_state->changed.wait_for(lock, std::chrono::duration<double>(seconds), is_over);
    }
    PrefetchProgress now = m_state->progress;
    now.left = m_state->left();
    return now;
}

void Prefetch::cancel() {
    if (getpid() != m_process) return;
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    m_state->is_cancelled = true;
}

}  // namespace lazyck::rt
