#include "store/estimate.h"

#include <algorithm>

namespace lazyck::rt {

namespace {

constexpr double k_least_patience = 1200;              // seconds
constexpr long k_unknown_need_kib = 4L * 1024 * 1024;  // enough for large CUDA files

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

}  // namespace lazyck::rt
