// Shares permits to compile among all processes of a host that use one cache: at most as many
// compilers run at a time as there are jobs, and no more than fit in the free memory. Messages call
// a permit a compile slot.
//
// A process takes a permit by locking its file <cache>/.slots/<host>/slot-<n>. The file then says
// "<KiB reserved> <process id>" of the compiler, with process 0 before the compiler is started.
// <cache>/.slots/<host>/admission is locked while a process decides.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "platform/lock.h"
#include "platform/messages.h"
#include "platform/wait_notice.h"

namespace lazyck::rt {

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

class HostPermit {
 public:
    // Waits for a permit and for free memory, and says so whenever a WaitNotice is due. If no other
    // compile runs on the host, it does not wait for memory. A permit does not count if its holder
    // was stopped (SIGSTOP, a debugger), or if one compile has held it for longer than the
    // patience: otherwise all processes would wait for ever.
    explicit HostPermit(PermitRequest request);

    // Returns how many other permits were taken when this one was.
    unsigned busy() const { return m_busy; }

    // Tells other processes which process uses the reserved memory.
    void started(pid_t compiler);

 private:
    using Clock = std::chrono::steady_clock;
    enum class Wanting { nothing, permit, memory };

    // Records what the file of a permit says, and since when this process has seen that.
    struct Holder {
        std::string text;
        Clock::time_point since;
    };

    bool admit(FileLock& admission, WaitNotice& notice);
    Wanting try_once(bool has_locks);
    bool is_passed_over(unsigned permit, const std::string& path, const std::string& text);

    const PermitRequest m_request;
    unsigned m_busy = 0;
    std::map<unsigned, Holder> m_holders;
    std::unique_ptr<FileLock> m_lock;
};

}  // namespace lazyck::rt
