// The locks of what exists once in a library. Each is held for moments only: never while the
// dynamic loader, the C library's name services or locale, or code of the program may run, and
// never while another one is taken. They are together so that a fork can take all of them, since
// the child has none of the threads that could release one.
#pragma once

#include <mutex>

namespace lazyck::rt {

enum class Shared { descriptors_of_locks, warnings_said, archs_of_devices };

std::mutex& lock_of(Shared what);

// Handlers of fork.
void global_locks_before_fork();
void global_locks_after_fork();

}  // namespace lazyck::rt
