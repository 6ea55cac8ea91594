// Makes a set of blobs ready in the background, with a bounded number of threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lazyck::rt {

struct PrefetchProgress {
    std::size_t total = 0, ready = 0, failed = 0;
    std::size_t running = 0;
    bool is_over = false;
    double left = -1;   // expected seconds until it is over; negative: unknown
    std::string error;  // of the first blob that failed
};

class Prefetch {
 public:
    // Makes one blob ready. Returns false if that would take a compile and `may_compile` is false.
    using Work = std::function<bool(std::size_t index, bool may_compile)>;
    // Returns the expected seconds of one blob's compile, or 0 if they are not known.
    using Expect = std::function<double(std::size_t index)>;

    // Starts the work on one index per element of `seconds`, which holds the expected compile times
    // (0: unknown; then `expect` is asked once the blob turns out to need a compile). Calls
    // `work(i, false)` in order, then `work(i, true)` for those that need a compile, the longest
    // first, on `workers` threads. A call that throws counts as failed. When this object ends, the
    // threads finish what they are working on and begin nothing more.
    Prefetch(std::vector<double> seconds, unsigned workers, Work work, Expect expect);
    Prefetch(const Prefetch&) = delete;
    Prefetch& operator=(const Prefetch&) = delete;
    ~Prefetch() { cancel(); }

    // Waits until the job is over, at most `seconds` (negative: for ever). In a child made by fork,
    // which has none of the threads, it is over at once.
    PrefetchProgress wait(double seconds) const;
    // Lets no more work begin.
    void cancel();

 private:
    using Clock = std::chrono::steady_clock;

    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        PrefetchProgress progress;
        std::vector<double> seconds;
        std::size_t next = 0;
        std::vector<std::size_t> to_compile;                 // the longest last
        std::map<std::size_t, Clock::time_point> compiling;  // since when
        double spent = 0;                                    // on the compiles that are over, in seconds
        std::size_t compiled = 0;
        bool is_cancelled = false;
        Work work;
        Expect expect;

        double left() const;
        bool perform(std::size_t index, bool may_compile, std::string& error) const;
        void end_thread();
    };

    static void run(const std::shared_ptr<State>& state);

    std::shared_ptr<State> m_state;
    pid_t m_process;
};

}  // namespace lazyck::rt
