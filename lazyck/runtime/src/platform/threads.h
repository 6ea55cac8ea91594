// Starts the runtime's own threads within other people's processes, and has what they share: locks,
// and objects that last.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "machine/machine.h"

namespace lazyck::rt {

// Blocks signals for the calling thread, and for threads that it starts, until the object is
// destroyed. Signals are for the program's own threads, which expect them. Those that a fault
// raises are not blocked: nobody else can handle them.
class BlockedSignals {
 public:
    BlockedSignals();
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;
    ~BlockedSignals();

 private:
    friend class SignalsLetIn;

    sigset_t m_before;
};

// Keeps the program's signals out while the runtime works in one of the program's threads. A
// handler may call a lazy function: it would wait for a lock that its own thread holds, or come
// into the allocator or the loader amid their work.
class SignalsKeptOut {
 public:
    SignalsKeptOut();
    SignalsKeptOut(const SignalsKeptOut&) = delete;
    SignalsKeptOut& operator=(const SignalsKeptOut&) = delete;
    ~SignalsKeptOut();

 private:
    const BlockedSignals m_blocked;
    const BlockedSignals* const m_outer;  // of the thread: an initializer of a blob calls another one
};

// Lets the program's signals come in while one of its threads waits, and holds no lock.
class SignalsLetIn {
 public:
    SignalsLetIn();
    SignalsLetIn(const SignalsLetIn&) = delete;
    SignalsLetIn& operator=(const SignalsLetIn&) = delete;
    ~SignalsLetIn();

 private:
    const BlockedSignals* const m_kept_out;
};

// Tells threads that something has changed. Other than std::condition_variable, it lets signals in,
// and holds nothing of the threads that wait: a child made by fork can go on with it.
class Changes {
 public:
    void tell();
    // Waits until `is_over` returns true, at most `seconds` (negative: for ever), and returns
    // whether that is so. `is_over` is called with the lock, under which changes are made.
    template <typename IsOver>
    bool wait(std::unique_lock<std::mutex>& lock, IsOver is_over, double seconds = -1) {
        const auto start = std::chrono::steady_clock::now();
        while (!is_over()) {
            const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
            if (seconds >= 0 && waited.count() >= seconds) return false;
            const std::uint32_t seen = m_count.load();
            ++m_waiting;
            lock.unlock();
            wait_beyond(seen, seconds < 0 ? seconds : seconds - waited.count());
            lock.lock();
            --m_waiting;
        }
        return true;
    }

 private:
    void wait_beyond(std::uint32_t seen, double seconds);

    std::atomic<std::uint32_t> m_count{0}, m_waiting{0};
};

// The program's floating-point settings are its own. With its traps on, or with its rounding, our
// sums of seconds would end the program or come out wrong. In a library that was linked ahead of
// time, blobs' initializers ran with default settings, too.
// So this gives the calling thread default settings until the object's end, which restores the
// earlier settings and flags. It uses assembly, because the C library's functions (<cfenv>) are in
// libm, which a lazy library need not have.
using DefaultFloatingPoint = machine::FloatingPoint;

// Runs `work`, which must not throw, on a thread. Throws if the system cannot start one.
std::thread new_thread(const std::function<void()>& work);
// Does so on a detached thread, for which the library must stay loaded. Returns false if the system
// cannot start one.
bool start_thread(const std::function<void()>& work);

// Returns the calling thread's number, as the kernel and profilers report it.
long thread_number();

// Calls `work` on a thread of ours, and throws what it throws. That thread has a table of
// descriptors of its own, with none of the program's but the standard ones: the program neither
// closes what `work` opens nor gets it in a fork, and may close and use all numbers in its own
// table. Signals come in meanwhile. Before that table is gone, calls `take` here with its path in
// /proc, such as "/proc/self/task/1/fd/". If there can be no such thread or table, `work` uses what
// is there, and `take` gets an empty path.
void run_apart(const std::function<void()>& work, const std::function<void(const std::string& table)>& take);

// Calls work(0) to work(count - 1) on at most `jobs` threads. If calls throw, the others are still
// made; then the first exception is thrown.
void for_each_in_parallel(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& work);

// The locks of what exists once in a library. Each is held for moments only: never while the
// dynamic loader, the C library's name services or locale, or code of the program may run, and
// never while another one is taken. They are together so that a fork can take all of them, since
// the child has none of the threads that could release one.
enum class Shared { warnings_said, archs_of_devices };

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
