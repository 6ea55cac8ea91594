// What is made at its first use and then lasts to the very end, when other threads may still call. Not a static local
// variable: its guard is a lock that the compiler adds, held while the value is made, and a child made by fork
// meanwhile waits for it for ever.
#pragma once

#include <atomic>
#include <memory>

namespace lazyck::rt {

template <typename T>
class Lasting {
 public:
    // The value; `make` makes it. Threads that come first together each make one, and all take the first.
    template <typename Make>
    T& get(Make make) {
        T* value = m_value.load(std::memory_order_acquire);
        if (value != nullptr) return *value;
        auto made = std::make_unique<T>(make());
        if (!m_value.compare_exchange_strong(value, made.get(), std::memory_order_acq_rel)) return *value;
        return *made.release();
    }

    // The next use makes another one. The old one stays: others may have it in hand.
    void forget() { m_value.store(nullptr, std::memory_order_release); }

 private:
    std::atomic<T*> m_value{nullptr};
};

}  // namespace lazyck::rt
