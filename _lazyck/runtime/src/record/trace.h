// Writes the file that LAZYCK_TRACE names: Chrome's trace events, for Perfetto. Several processes
// share it.
#pragma once

#include <atomic>
#include <string>
#include <utility>

namespace lazyck::rt {

struct Event;

class Trace {
 public:
    explicit Trace(std::string path) : m_path(std::move(path)) {}

    // Appends an event that has ended, on behalf of the calling thread. With an empty path, no
    // trace is kept. The first failure to write is reported.
    void add(const Event& event);

    void after_fork_in_child() { m_is_process_named = false; }

 private:
    const std::string m_path;
    std::atomic<bool> m_is_process_named{false}, m_has_warned{false};
};

}  // namespace lazyck::rt
