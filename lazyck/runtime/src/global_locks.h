// The locks of what there is once in a library. Each is held for moments: never while the dynamic loader, the C
// library's name services or locale, or code of the program may run, and none while another one is taken. They are
// here, so that a fork can take them all: the child has none of the threads that could let go of one.
#pragma once

#include <mutex>

namespace lazyck::rt {

enum class Shared { descriptors_of_locks, warnings_said, archs_of_devices };

std::mutex& lock_of(Shared what);

// Handlers of fork.
void global_locks_before_fork();
void global_locks_after_fork();

}  // namespace lazyck::rt
