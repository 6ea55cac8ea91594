// Work of the library that is under way, some of it on threads of its own.
#pragma once

#include "library/states.h"

namespace lazyck::rt {

// Something in flight, for as long as this object exists. What was in flight at a fork is not in
// flight in the child.
class Activity {
 public:
    explicit Activity(States& states);
    Activity(const Activity&) = delete;
    Activity& operator=(const Activity&) = delete;
    ~Activity();

 private:
    States& m_states;
    unsigned m_generation;
};

// Keeps the library loaded, because threads of ours run its code for as long as the process lives.
// This calls the dynamic loader, so call it while no lock is held.
void stay_loaded();

}  // namespace lazyck::rt
