// What happens to blobs (compiled, waited for, loaded), told to whoever wants to know: the cache's history, a trace
// file (LAZYCK_TRACE), the ranges of a GPU profiler, the program's own listener.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "listener.h"
#include "trace.h"

namespace lazyck::rt {

struct Event {
    const char* kind = "";  // "compile", "wait" or "load"
    std::string library, blob, arch;
    double start = 0;    // seconds since 1970
    double seconds = 0;  // that it took
    bool has_failed = false;
    std::string what;        // of a failure why, of a wait for what, of a load from where
    long peak_kib = 0;       // of a compile: its largest process; 0: unknown
    std::uint64_t size = 0;  // bytes of the entry; 0: unknown
};

class Events {
 public:
    // Hears of each event as it ends, and of compiles also as they begin (`seconds` 0), in order and some time later,
    // on a thread of its own. Must not throw.
    using Callback = std::function<void(bool has_ended, const Event&)>;

    explicit Events(std::string trace) : m_trace(std::move(trace)) {}

    // Replaces the one there was, which is told before this returns of all that happened until now; empty: none. Throws
    // CompileError where that takes it too long, or there is no thread for the new one.
    void set_listener(Callback listener);
    // To be called while no lock is held, before events.
    void prepare() { m_listener.ensure_thread(); }
    // Tells the listener of an event that takes long.
    void begin(const Event& event);
    // Tells all of an event that is over. `history` is the file that keeps it (see events.cpp); "": there is none.
    void tell(const Event& event, const std::string& history);
    // Writes what has not been written yet.
    void flush();
    // At the end: as flush, and the listener hears no more.
    void close();

    // Handlers of fork. What has not been written is the parent's to write.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

 private:
    struct Pending {
        Event event;
        pid_t process;
        long thread;
    };

    void post(bool has_ended, const Event& event);

    Trace m_trace;
    std::mutex m_mutex;              // held for moments only
    std::vector<Pending> m_pending;  // for the history file: put into words when they are written
    std::string m_history;
    std::shared_ptr<const Callback> m_callback;
    Listener m_listener;
};

// An event under way: begins with the object, ends with it. One that is not said to have succeeded has failed.
class Span {
 public:
    Span(Events& events, Event event, std::string history);
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    ~Span();

    Event& event() { return m_event; }
    void succeed() { m_event.has_failed = false; }

 private:
    Events& m_events;
    Event m_event;
    std::string m_history;
    std::int64_t m_start_ns;
};

// Seconds since 1970.
double now_seconds();

}  // namespace lazyck::rt
