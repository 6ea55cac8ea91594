// Compile slots that all processes of a host share which use one cache: as many compilers at a time as there are jobs,
// and no more than the free memory has room for.
//
// <cache>/.slots/<host>/slot-<n>: a slot is taken by locking its file, which then says "<KiB reserved> <process id>" of
// the compiler, 0 before it is started. <cache>/.slots/<host>/admission is locked while somebody decides.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lock.h"
#include "messages.h"
#include "wait_notice.h"

namespace lazyck::rt {

// Kilobytes that could be used now without swapping: the machine's, or what is left to the cgroup; negative: unknown.
long free_memory_kib();

struct SlotRequest {
    std::string directory;  // which exists
    unsigned jobs = 1;
    long needed_kib = 0;  // 0: whatever is free
    double patience = 0;  // seconds that somebody else may hold a slot until he is passed over
    Subject subject;      // waits, for messages
};

class CompileSlot {
 public:
    // Waits for a slot and for room in memory. Says as a WaitNotice is due that it waits, and for what. Alone on
    // the host it never waits for memory. A slot whose holder was stopped (SIGSTOP, a debugger), or which one compile
    // has held for longer than the patience, does not count: else all would wait for ever.
    explicit CompileSlot(SlotRequest request);

    // How many others were taken when this one was.
    unsigned busy() const { return m_busy; }

    // Tells others which process is using the memory that was reserved.
    void started(pid_t compiler);

 private:
    using Clock = std::chrono::steady_clock;
    enum class Wanting { nothing, slot, memory };

    // Who holds a slot, and since when this process has seen it so.
    struct Holder {
        std::string text;
        Clock::time_point since;
    };

    bool admit(FileLock& admission, WaitNotice& notice);
    Wanting try_once(bool has_locks);
    bool is_passed_over(unsigned slot, const std::string& path, const std::string& text);

    const SlotRequest m_request;
    unsigned m_busy = 0;
    std::map<unsigned, Holder> m_holders;
    std::unique_ptr<FileLock> m_lock;
};

}  // namespace lazyck::rt
