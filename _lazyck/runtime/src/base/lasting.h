// Holds an object that is made at its first use and then lasts to the very end, when other threads
// may still use it. It replaces a static local variable. Such a variable has a guard, a lock that
// the compiler adds and holds while the value is made. A child that is made by fork meanwhile would
// wait for the guard for ever.
#pragma once

#include <atomic>
#include <memory>

namespace lazyck::rt {

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
