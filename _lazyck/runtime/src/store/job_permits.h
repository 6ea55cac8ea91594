// Bounds the number of compilers that this process runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace lazyck::rt {

class JobPermits {
 public:
    explicit JobPermits(unsigned count) : m_count(count), m_state(std::make_unique<State>(count)) {}

    // Announces that another thread makes `blob` ready, which gets no permit before `first` has had
    // one or needs none. Until `withdraw`, compiles leave permits free for it.
    void announce(const std::string& blob, const std::string& first);
    void withdraw() { --m_state->announced; }
    unsigned announced() const { return m_state->announced; }
    void needs_none(const std::string& first);

    // Gives the child new permits, all of them free. The old ones are leaked: their lock may be
    // held by a thread that the child does not have.
    void after_fork_in_child();

 private:
    friend class HeldPermit;

    struct State {
        explicit State(unsigned count) : free(count) {}
        std::mutex mutex;
        std::condition_variable changed;
        unsigned free;
        unsigned waiting = 0;                       // in acquire()
        std::map<std::string, std::string> behind;  // blob -> first
        std::atomic<unsigned> announced{0};
    };

    void acquire(const std::string& blob);
    void acquire_for_later();
    bool try_acquire();
    void release();
    void let_pass(const std::string& first);

    const unsigned m_count;
    std::unique_ptr<State> m_state;
};

// A permit to run a compiler, for as long as this object exists.
class HeldPermit {
 public:
    HeldPermit(JobPermits& permits, const std::string& blob) : m_permits(permits) { m_permits.acquire(blob); }
    // Takes a permit for work that no call waits for. It comes after all waiting calls, unless they
    // are so many that the work pays off for them.
    explicit HeldPermit(JobPermits& permits) : m_permits(permits) { m_permits.acquire_for_later(); }
    HeldPermit(const HeldPermit&) = delete;
    HeldPermit& operator=(const HeldPermit&) = delete;
    ~HeldPermit();

    // Takes a second permit if one is free. Returns whether it did.
    bool takes_one_more();

 private:
    JobPermits& m_permits;
    unsigned m_held = 1;
};

}  // namespace lazyck::rt
