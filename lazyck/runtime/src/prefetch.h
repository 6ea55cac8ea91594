// A set of blobs that is made ready in the background, by a bounded number of threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <vector>

namespace lazyck::rt {

struct PrefetchProgress {
    std::size_t total = 0, ready = 0, failed = 0;
    std::size_t running = 0;
    bool is_over = false;
    std::string error;  // of the first that failed
};

class Prefetch {
 public:
    using Work = std::function<void(std::size_t)>;

    // Calls `work(0)` to `work(count - 1)`, in that order, on `workers` threads; what throws counts as failed. The threads
    // outlive this object until what they work on is done; what has not begun by its end never does.
    Prefetch(std::size_t count, unsigned workers, Work work);
    Prefetch(const Prefetch&) = delete;
    Prefetch& operator=(const Prefetch&) = delete;
    ~Prefetch() { cancel(); }

    PrefetchProgress progress() const;
    // Waits until it is over, at most so many seconds (negative: for ever). In a child made by fork, which has none of
    // the threads, it is over at once.
    PrefetchProgress wait(double seconds) const;
    // Nothing more is begun.
    void cancel();

 private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        PrefetchProgress progress;
        std::size_t next = 0;
        bool is_cancelled = false;
        Work work;
    };

    static void run(const std::shared_ptr<State>& state);

    std::shared_ptr<State> m_state;
    pid_t m_process;
};

}  // namespace lazyck::rt
