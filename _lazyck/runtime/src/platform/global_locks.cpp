#include "platform/global_locks.h"

#include <array>
#include <cstddef>

namespace lazyck::rt {

namespace {

std::array<std::mutex, 3> g_locks;

}  // namespace

std::mutex& lock_of(Shared what) { return g_locks[static_cast<std::size_t>(what)]; }

void global_locks_before_fork() {
    for (std::mutex& each : g_locks) each.lock();
}

void global_locks_after_fork() {
    for (std::mutex& each : g_locks) each.unlock();
}

}  // namespace lazyck::rt
