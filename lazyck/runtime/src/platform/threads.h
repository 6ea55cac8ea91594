// Starts the runtime's own threads within other people's processes, and has what they share: locks,
// and objects that last.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "machine/machine.h"

namespace lazyck::rt {

// Blocks all signals for the calling thread, and for threads that it starts, until the object is
// destroyed. Signals are for the program's own threads, which expect them.
class BlockedSignals {
 public:
    BlockedSignals();
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;
    ~BlockedSignals();

 private:
    sigset_t m_before;
};

// The program's floating-point settings are its own. With its traps on, or with its rounding, our
// sums of seconds would end the program or come out wrong. In a library that was linked ahead of
// time, blobs' initializers ran with default settings, too.
// So this gives the calling thread default settings until the object's end, which restores the
// earlier settings and flags. It uses assembly, because the C library's functions (<cfenv>) are in
// libm, which a lazy library need not have.
using DefaultFloatingPoint = machine::FloatingPoint;

// Runs `work`, which must not throw, on a detached thread. Returns false if the system cannot start
// one. The library must stay loaded.
bool start_thread(std::function<void()> work);

// Returns the calling thread's number, as the kernel and profilers report it.
long thread_number();

// Calls work(0) to work(count - 1) on at most `jobs` threads. If calls throw, the others are still
// made; then the first exception is thrown.
void for_each_in_parallel(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& work);

// The locks of what exists once in a library. Each is held for moments only: never while the
// dynamic loader, the C library's name services or locale, or code of the program may run, and
// never while another one is taken. They are together so that a fork can take all of them, since
// the child has none of the threads that could release one.
enum class Shared { descriptors_of_locks, warnings_said, archs_of_devices };

std::mutex& lock_of(Shared what);

void global_locks_before_fork();
void global_locks_after_fork();

// Holds an object that is made at its first use and then lasts to the very end, when other threads
// may still use it. It replaces a static local variable. Such a variable has a guard, a lock that
// the compiler adds and holds while the value is made. A child that is made by fork meanwhile would
// never get past the guard.
template <typename T>
class Lasting {
 public:
    // Returns the value, which `make` makes. Threads that come first together each make one, and
    // all take the first.
    template <typename Make>
    T& get(Make make) {
        T* value = m_value.load(std::memory_order_acquire);
        if (value != nullptr) return *value;
        auto made = std::make_unique<T>(make());
        if (!m_value.compare_exchange_strong(value, made.get(), std::memory_order_acq_rel)) return *value;
        return *made.release();
    }

    // Makes the next use make another value. The old one stays, because others may still use it.
    void forget() { m_value.store(nullptr, std::memory_order_release); }

 private:
    std::atomic<T*> m_value{nullptr};
};

}  // namespace lazyck::rt
