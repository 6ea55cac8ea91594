// Permits to compile, of this process and of the host.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "platform/lock.h"
#include "platform/messages.h"
#include "platform/threads.h"

namespace lazyck::rt {

// Bounds the number of compilers that this process runs.
class ProcessPermits {
 public:
    explicit ProcessPermits(unsigned count) : m_count(count), m_state(std::make_unique<State>(count)) {}

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
        Changes changed;
        unsigned free;
        unsigned waiting = 0;                       // calls
        std::map<std::string, std::string> behind;  // blob -> first
        std::atomic<unsigned> announced{0};
    };

    void let_pass(const std::string& first);

    const unsigned m_count;
    std::unique_ptr<State> m_state;
};

// A permit to run a compiler, for as long as this object exists.
class HeldPermit {
 public:
    HeldPermit(ProcessPermits& permits, const std::string& blob);
    // Takes a permit for work that no call waits for. It comes after all waiting calls, unless they
    // are so many that the work pays off for them.
    explicit HeldPermit(ProcessPermits& permits);
    HeldPermit(const HeldPermit&) = delete;
    HeldPermit& operator=(const HeldPermit&) = delete;
    ~HeldPermit();

    // Takes a second permit if one is free. Returns whether it did.
    bool takes_one_more();

 private:
    ProcessPermits& m_permits;
    unsigned m_held = 1;
};

// Returns the kilobytes that can be used without swapping, on the machine or in the cgroup,
// whichever is less. The result is negative if unknown.
long free_memory_kib();

struct PermitRequest {
    std::string directory;  // exists
    unsigned jobs = 1;
    long needed_kib = 0;  // 0: whatever is free
    double patience = 0;  // seconds after which another holder of a permit is passed over
    Subject subject;      // what waits, for messages
};

// Shares permits to compile among all processes of a host that use one cache: at most as many
// compilers run at a time as there are jobs, and no more than fit in the free memory.
//
// A process takes a permit by locking its file <cache>/.slots/<host>/slot-<n>. The file then says
// "<KiB reserved> <process id>" of the compiler, with process 0 before the compiler is started.
// <cache>/.slots/<host>/admission is locked while a process decides.
class HostPermit {
 public:
    // Waits for a permit and for free memory, and reports the wait whenever a WaitNotice is due. If
    // no other compile runs on the host, it does not wait for memory. A permit does not count if
    // its holder was stopped (SIGSTOP, a debugger), or if one compile has held it for longer than
    // the patience: otherwise all processes would wait without a bound.
    explicit HostPermit(PermitRequest request);

    // Returns how many other permits were taken when this one was.
    unsigned busy() const { return m_busy; }

    // Tells other processes which process uses the reserved memory.
    void started(pid_t compiler);

 private:
    using Clock = std::chrono::steady_clock;
    enum class Wanting { nothing, permit, memory };

    // What the file of a permit says, and since when.
    struct Holder {
        std::string text;
        Clock::time_point since;
    };

    bool admit(FileLock& admission, WaitNotice& notice);
    Wanting try_once();
    bool is_passed_over(unsigned permit, const std::string& path, const std::string& text);

    const PermitRequest m_request;
    unsigned m_busy = 0;
    std::map<unsigned, Holder> m_holders;
    std::unique_ptr<FileLock> m_lock;
};

}  // namespace lazyck::rt
