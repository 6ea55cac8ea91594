#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/failure.h"
#include "base/text.h"
#include "library/readiness.h"
#include "platform/messages.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

using Clock = std::chrono::steady_clock;

// Returns what a profile names: a blob, or a part of one, whose name begins with the blob's.
std::optional<Wanted> wanted_by_name(const Blobs& blobs, const std::string& name) {
    if (const auto found = blobs.find(name)) return Wanted{*found, nullptr, false, "", ""};
    const auto blob = blobs.find(name.substr(0, name.rfind('.')));
    if (!blob || !blobs.manifest().has_parts(static_cast<std::uint32_t>(*blob))) return std::nullopt;
    return Wanted{*blob, nullptr, true, name, ""};
}

}  // namespace

struct Prefetch::State {
    State(Core& its_core, Readiness& its_readiness, const std::vector<ProfileRow>& rows);

    Core& core;
    Readiness& readiness;
    std::vector<Wanted> wanted;   // what is to be made ready
    std::vector<double> seconds;  // that each compile is expected to take; 0: the cache is asked when that counts
    std::unique_ptr<Activity> activity = std::make_unique<Activity>(core.states);  // until it is over

    std::mutex mutex;
    Changes changed;
    lazyck_progress progress = {};
    std::string first_error;
    std::size_t running = 0;  // threads
    std::size_t next = 0;
    // The negative of the seconds, so that the longest come first, then in the requested order.
    std::set<std::pair<double, std::size_t>> to_compile;
    std::map<std::size_t, Clock::time_point> compiling;  // since when
    double spent = 0;                                    // on the compiles that are over, in seconds
    std::size_t compiled = 0;
    bool is_cancelled = false;

    double left() const;
    double expected_seconds(const Wanted& each) const;
    bool try_ready(const Wanted& each, bool may_compile, std::string& error) const;
    void end_thread();
};

Prefetch::State::State(Core& its_core, Readiness& its_readiness, const std::vector<ProfileRow>& rows)
    : core(its_core), readiness(its_readiness) {
    std::vector<BlobId> blobs;
    std::unordered_set<BlobId> whole, by_kernel;
    std::string missing;
    std::size_t missing_count = 0;
    const auto add = [&](const Wanted& each, double expected) {
        blobs.push_back(each.blob);
        wanted.push_back(each);
        seconds.push_back(expected);
    };
    for (const ProfileRow& row : rows) {
        auto found = wanted_by_name(core.blobs, row.blob);
        if (!found) {
            if (missing_count++ == 0) missing = row.blob;
            continue;
        }
        if (!found->part.empty()) found->line = row.kernel;
        (found->part.empty() ? whole : by_kernel).insert(found->blob);
        add(*found, row.seconds);
    }
    // A blob whose kernels are named is itself made ready only as far as these kernels need it.
    for (const BlobId blob : by_kernel) {
        if (whole.count(blob) == 0) add({blob, nullptr, true, "", ""}, 0);
    }
    const std::vector<Wanted> here = core.blobs.wanted_here(blobs);
    for (std::size_t i = 0; i < blobs.size(); ++i) {
        wanted[i].archs = here[i].archs;
        wanted[i].is_called = by_kernel.count(blobs[i]) != 0;
    }
    if (missing_count > 0) {
        log_message(Level::warn, std::to_string(missing_count) + " of " + std::to_string(rows.size()) +
                                     " blobs to prefetch are not in '" + core.blobs.path() + "' (such as '" +
                                     visible(missing) + "'): recorded with another build of it?");
    }
    progress.total = wanted.size();
}

Prefetch::Prefetch(Core& core, Readiness& readiness, const std::vector<ProfileRow>& rows, unsigned workers)
    : m_state(std::make_shared<State>(core, readiness, rows)), m_process(getpid()) {
    stay_loaded();
    const std::size_t most = std::max(1U, workers == 0 ? core.store.config.jobs : workers);
    const std::size_t threads = std::min(m_state->wanted.size(), most);
    m_state->running = std::max<std::size_t>(1, threads);
    std::size_t started = 0;
    while (started < threads && start_thread([state = m_state] { run(state); })) ++started;
    // With fewer threads, it takes longer. Without any, all blobs are left to the callers' own
    // calls.
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    while (started++ < std::max<std::size_t>(1, threads)) m_state->end_thread();
}

// Returns the expected seconds until the prefetch is over, or a negative number if nothing is
// known. A blob of which nothing is known is expected to take as long as the others on average.
// Blobs that were not looked up yet are counted as if they had to be compiled.
double Prefetch::State::left() const {
    if (progress.is_over != 0) return 0;
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
    for (std::size_t i = next; i < progress.total; ++i) add(expected(i));
    for (const auto& each : to_compile) add(expected(each.second));
    for (const auto& each : compiling) add(expected(each.first) - seconds_since(each.second));
    return std::max(longest, sum / static_cast<double>(std::max<std::size_t>(1, running)));
}

// Returns how long a compile will take, by what the cache knows, or 0.
double Prefetch::State::expected_seconds(const Wanted& each) const {
    const ManifestRow at = core.blobs.row(each.blob);
    try {
        double sum = 0;
        const Strings archs = each.archs ? *each.archs : core.blobs.archs_here(each.blob);
        for (const Strings& one : archs_of_entries(at.blob(), archs))
            sum += core.store.expected_cost(at, one).blob.seconds;
        return sum;
    } catch (const std::exception&) {
        return 0;  // the compile will report what is wrong
    }
}

// Returns false, without an error, if a blob takes a compile and `may_compile` is false.
bool Prefetch::State::try_ready(const Wanted& each, bool may_compile, std::string& error) const {
    try {
        if (!may_compile && !readiness.is_at_hand(each)) return false;
        readiness.make_ready(each);
        if (each.part.empty()) readiness.load_parts(each.blob);
        return true;
    } catch (const std::exception& e) {
        error = e.what();
    } catch (...) {
        error = "lazyck: unknown error";
    }
    return false;
}

// The caller must hold the mutex.
void Prefetch::State::end_thread() {
    if (--running == 0) {
        progress.is_over = 1;
        activity.reset();
    }
    changed.tell();
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
            index = state->to_compile.begin()->second;
            state->to_compile.erase(state->to_compile.begin());
            state->compiling.emplace(index, Clock::now());
        }
        std::string error;
        lock.unlock();
        const Wanted& each = state->wanted[index];
        const bool is_ready = state->try_ready(each, !is_first_pass, error);
        const bool needs_compile = !is_ready && error.empty();
        const bool is_unknown = needs_compile && state->seconds[index] <= 0;
        const double expected = is_unknown ? state->expected_seconds(each) : 0;
        lock.lock();
        if (needs_compile) {
            if (is_unknown) state->seconds[index] = expected;
            state->to_compile.emplace(-state->seconds[index], index);
            continue;
        }
        const auto began = state->compiling.find(index);
        if (began != state->compiling.end()) {
            state->spent += seconds_since(began->second);
            ++state->compiled;
            state->compiling.erase(began);
        }
        ++(is_ready ? state->progress.ready : state->progress.failed);
        if (!is_ready && state->first_error.empty()) state->first_error = error;
        state->changed.tell();
    }
    state->end_thread();
}

lazyck_progress Prefetch::wait(double seconds, std::string& error) const {
    if (getpid() != m_process) {
        error.clear();
        return {0, 0, 0, 0, 1, 0};
    }
    std::unique_lock<std::mutex> lock(m_state->mutex);
    const auto is_over = [&] { return m_state->progress.is_over != 0; };
    m_state->changed.wait(lock, is_over, seconds);
    error = m_state->first_error;
    lazyck_progress now = m_state->progress;
    now.left = m_state->left();
    return now;
}

void Prefetch::cancel() {
    if (getpid() != m_process) return;
    const std::lock_guard<std::mutex> guard(m_state->mutex);
    m_state->is_cancelled = true;
}

std::vector<ProfileRow> rows_of_names(const Blobs& blobs, const Strings& names) {
    std::vector<ProfileRow> rows(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (!wanted_by_name(blobs, names[i]))
            fail("lazyck: " + blobs.path() + " has no blob '" + visible(names[i]) + "'");
        rows[i].blob = names[i];
    }
    return rows;
}

}  // namespace lazyck::rt
