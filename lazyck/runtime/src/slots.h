// Compile slots that all processes of a host share which use one cache: as many compilers at a time as there are jobs,
// and no more than the free memory has room for.
//
// <cache>/.slots/<host>/slot-<n>: a slot is taken by locking its file, which then says "<KiB reserved> <process id>" of
// the compiler, 0 before it is started. <cache>/.slots/<host>/admission is locked while somebody decides.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "lock.h"

namespace lazyck::rt {

// Kilobytes that could be used now without swapping: the machine's, or what is left to the cgroup; negative: unknown.
long free_memory_kib();

class CompileSlot {
 public:
    // Waits for a slot below `directory` (which exists), out of `jobs`, and for room for `needed_kib` (0: whatever is
    // free). After five seconds and then every half minute says that `what` waits, and for what. Alone on the host it
    // never waits for memory.
    CompileSlot(const std::string& directory, unsigned jobs, long needed_kib, const std::string& what);

    // Tells others which process is using the memory that was reserved.
    void started(pid_t compiler);

 private:
    enum class Wanting { nothing, slot, memory };
    Wanting try_once(const std::string& directory, unsigned jobs, bool has_locks);

    long m_needed_kib;
    unsigned m_busy = 0;
    std::unique_ptr<FileLock> m_lock;
};

}  // namespace lazyck::rt
