// Makes a set of blobs ready in the background, with a bounded number of threads.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lazyck::rt {

struct PrefetchProgress {
    std::size_t total = 0, ready = 0, failed = 0;
    std::size_t running = 0;
    bool is_over = false;
    std::string error;  // of the first blob that failed
};

class Prefetch {
 public:
    // Makes one blob ready. Returns false if that would take a compile and `may_compile` is false.
    using Work = std::function<bool(std::size_t index, bool may_compile)>;

    // Starts the work on one index per element of `seconds`, which holds the expected compile times
    // (0: unknown). Calls `work(i, false)` in order, then `work(i, true)` for those that need a
    // compile, the longest first, on `workers` threads. A call that throws counts as failed. When
    // this object ends, the threads finish what they are working on and begin nothing more.
    Prefetch(std::vector<double> seconds, unsigned workers, Work work);
    Prefetch(const Prefetch&) = delete;
    Prefetch& operator=(const Prefetch&) = delete;
    ~Prefetch() { cancel(); }

    PrefetchProgress progress() const;
    // Waits until the job is over, at most `seconds` (negative: for ever). In a child made by fork,
    // which has none of the threads, it is over at once.
    PrefetchProgress wait(double seconds) const;
    // Lets no more work begin.
    void cancel();

 private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        PrefetchProgress progress;
        std::vector<double> seconds;
        std::size_t next = 0;
        std::vector<std::size_t> to_compile;  // the longest last
        bool is_cancelled = false;
        Work work;
    };

    static void run(const std::shared_ptr<State>& state);

    std::shared_ptr<State> m_state;
    pid_t m_process;
};

}  // namespace lazyck::rt
