// Tells when a process that waits should say so: after two seconds, and then every half minute.
#pragma once

#include <chrono>

namespace lazyck::rt {

class WaitNotice {
 public:
    using Clock = std::chrono::steady_clock;

    // Returns the seconds since the wait began.
    double waited() const { return std::chrono::duration<double>(Clock::now() - m_start).count(); }

    // Returns the seconds until the next line is due, or a negative number if one is due.
    double left() const { return std::chrono::duration<double>(m_next - Clock::now()).count(); }

    // Returns true once for each line that is due.
    bool is_due() {
        if (Clock::now() < m_next) return false;
        m_next += std::chrono::seconds(30);
        return true;
    }

 private:
    const Clock::time_point m_start = Clock::now();
    Clock::time_point m_next = m_start + std::chrono::seconds(2);
};

}  // namespace lazyck::rt
