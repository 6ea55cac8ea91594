// Takes turns with other processes that miss the same entry: one of them makes it, and the others
// then find it.
#pragma once

#include <optional>

#include "cache/entry.h"
#include "platform/lock.h"
#include "record/events.h"
#include "store/counters.h"
#include "store/missing.h"

namespace lazyck::rt {

class Turn {
 public:
    // Waits for the entry's lock, at most `patience` seconds, or until the entry is there. Throws
    // CompileError.
    Turn(const Missing& missing, double patience, Events& events);

    // Looks up the entry again, under the lock, and returns it if another process has published it.
    // Moves a damaged one aside. Throws CompileError.
    std::optional<Entry> look_up_again(Counters& counters);

 private:
    bool look_up();

    const Missing& m_missing;
    EntryLookup m_found;
    const double m_begin = now_seconds();
    const BlobLock m_lock;
};

}  // namespace lazyck::rt
