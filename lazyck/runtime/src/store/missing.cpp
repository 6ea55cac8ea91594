#include <algorithm>
#include <cerrno>

#include "base/failure.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "store/store.h"

namespace lazyck::rt {

namespace {

constexpr double k_least_patience = 1200;                    // seconds
constexpr long k_unknown_need_kib = 4L * 1024 * 1024;        // enough for large CUDA files
constexpr double k_least_wait = 0.05, k_longest_wait = 1e6;  // seconds

// An unknown exit status counts as the compiler's own failure if the output says what is wrong.
CommandEnd end_of(const Outcome& outcome, const std::string& output) {
    if (outcome.ending == Ending::unknown) return {output.find("error") != std::string::npos, 1, 0, output};
    if (outcome.has_timed_out) return {};
    return {outcome.signal == 0, outcome.exit_status, outcome.signal, output};
}

}  // namespace

double patience(const Config& config, const Guess& guess) {
    if (config.lock_timeout >= 0) return config.lock_timeout;
    return std::max(k_least_patience, 4 * std::max(guess.blob.seconds, guess.largest.seconds));
}

long memory_for(const Config& config, const Guess& guess) {
    if (config.mem_per_job_kib >= 0) return config.mem_per_job_kib;
    const long known = guess.blob.peak_kib > 0 ? guess.blob.peak_kib : guess.largest.peak_kib;
    return known > 0 ? known + known / 5 : k_unknown_need_kib;
}

Verdict judge(const Outcome& outcome, const std::string& output, int log_error, const std::string& staging) {
    if (!is_directory(staging)) return {false, ENOENT};  // the cache was emptied
    if (log_error != 0) return {false, log_error};
    const CommandEnd end = end_of(outcome, output);
    if (is_final(end)) return {true, 0};
    const int said = storage_error_in(end.output);
    if (said == 0 && is_of_memory(end)) return {false, 0, true};
    return {false, said == 0 && is_full(staging) ? ENOSPC : said};
}

Missing::Missing(Store& its_store, const ManifestRow& row, const Strings& archs, Cache& its_cache,
                 const std::string& compiler)
    : store(its_store),
      at(row),
      blob(at.blob()),
      key(store.key_of(at, archs, compiler)),
      cache(its_cache),
      symbols(at.manifest.symbols_of(blob)),
      path(cache.entry_path(key)),
      subject(subject_of(at.manifest, blob, key.arch_label())),
      guess(store.guess(at.manifest, cache.costs(key))) {
    cache.make_directories_for(key);
}

void Missing::tell_wait(const std::string& what, double begin) const {
    Event event(LAZYCK_EVENT_WAIT, subject);
    event.what = what;
    event.start = begin;
    event.seconds = now_seconds() - begin;
    // An implausible time, from a clock that jumped, is not reported, nor is a wait too short to
    // notice.
    if (event.seconds >= k_least_wait && event.seconds < k_longest_wait) store.events.tell(event, cache.history_path());
}

PermitRequest Missing::permit_request() const {
    return {cache.permits_dir(), store.config.jobs, memory_for(store.config, guess), patience(store.config, guess),
            subject};
}

void Missing::fail(const std::string& reason, const Verdict& verdict, const std::string& command) const {
    const FailureParts parts = {subject.blob, cache.log_path(key), command};
    const std::string message = "lazyck: cannot compile blob '" + visible(subject.blob) + "' for " + subject.arch +
                                ": " + reason + "\n  log: " + parts.log +
                                (command.empty() ? "" : "\n  to reproduce: " + command);
    if (verdict.is_final) {
        rt::fail<PermanentFailure>(
            message + "\n  later calls in this process will not try again, unless it calls lazyck_clear_failures()",
            parts);
    }
    if (verdict.is_of_memory) rt::fail<OutOfMemory>(message, parts);
    if (verdict.storage_error != 0) throw SystemFailure(message, parts, verdict.storage_error);
    rt::fail(message, parts);
}

}  // namespace lazyck::rt
