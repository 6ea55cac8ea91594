// Reports what happens to blobs (compiled, waited for, loaded) to the cache's history, a trace file
// (LAZYCK_TRACE) and the program's own listener.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "machine/machine.h"
#include "platform/messages.h"
#include "platform/threads.h"

namespace lazyck::rt {

struct Event {
    Event(const char* its_kind, const Subject& subject)
        : kind(its_kind), library(subject.library), blob(subject.blob), arch(subject.arch) {}

    const char* kind;  // "compile", "wait" or "load"
    std::string library, blob, arch;
    double start = 0;    // seconds since 1970
    double seconds = 0;  // duration
    bool has_failed = false;
    std::string what;        // a failure's reason, what was waited for, or where a load came from
    long peak_kib = 0;       // of a compile: its largest process; 0: unknown
    std::uint64_t size = 0;  // bytes of the entry; 0: unknown
    double expected = 0;     // seconds that a compile was expected to take; 0: unknown
};

class Events {
 public:
    // Gets each event when it has ended, and a compile also when it begins (then `seconds` is 0).
    // It is called in order, some time later, on a thread of its own. Must not throw.
    using Callback = std::function<void(bool has_ended, const Event&)>;

    // `trace` is the path of the trace file; empty: no trace is kept.
    explicit Events(std::string trace) : m_trace(std::move(trace)) {}

    // Replaces the listener. An empty function means that there is none. Before this returns, the
    // earlier listener gets all events that have happened so far. Throws CompileError if that takes
    // it too long, or if no thread can be started for the new one.
    void set_listener(Callback listener);
    // Starts the listener's thread if there is none, as in a child made by fork. Must be called
    // while no lock is held, before events are reported.
    void prepare();
    // Tells the listener that a long event begins.
    void begin(const Event& event) { post(false, event); }
    // Reports an ended event everywhere. `history` is the file that keeps it (see events.cpp), or
    // an empty string if there is none.
    void tell(const Event& event, const std::string& history);
    void flush();
    // Ends the reporting: writes what is left, and stops the listener.
    void close();

    // Handlers of fork. Events that have not been written are left to the parent.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

 private:
    // What is shared with the listener's thread, which may outlive this object. The listener may
    // take locks (Python's, for example) that are held by a thread which waits for lazyck. So
    // nothing that a call waits for may wait for the listener.
    struct Queue {
        std::mutex mutex;
        Changes changed;
        std::shared_ptr<const Callback> callback;
        std::deque<std::function<void()>> messages;  // each tells the listener of one event
        bool is_open = false;                        // takes messages
        bool is_telling = false;
        bool has_thread = false;
        std::size_t dropped = 0;
        std::thread::id teller;
    };

    static void run(const std::shared_ptr<Queue>& queue);
    // Stops taking messages, then waits at most `seconds` until the listener was told all queued
    // ones. Returns whether it was. The listener itself may call this function, which then does not
    // wait.
    bool close_queue(double seconds);
    void post(bool has_ended, const Event& event);
    // Appends an event that has ended to the trace, on behalf of the calling thread. Several
    // processes share the file. The first failure to write is reported.
    void trace(const Event& event);

    const std::string m_trace;
    machine::Flag m_is_process_named{false};  // in the trace
    machine::Flag m_has_warned{false};        // that the trace cannot be written
    std::mutex m_mutex;                       // held for moments only
    // For the history file, with the threads' numbers; formatted when they are written.
    std::vector<std::pair<Event, long>> m_pending;
    std::string m_history;
    std::shared_ptr<Queue> m_queue = std::make_shared<Queue>();
};

// An event under way, which begins and ends with the object. It has failed unless succeed() is
// called.
class Span {
 public:
    Span(Events& events, Event event, std::string history)
        : m_events(events), m_event(std::move(event)), m_history(std::move(history)) {
        m_event.start = now_seconds();
        m_event.has_failed = true;
        m_events.begin(m_event);
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    ~Span() {
        m_event.seconds = seconds_since(m_start);
        m_events.tell(m_event, m_history);
    }

    Event& event() { return m_event; }
    void succeed() { m_event.has_failed = false; }

 private:
    Events& m_events;
    Event m_event;
    std::string m_history;
    const std::chrono::steady_clock::time_point m_start = std::chrono::steady_clock::now();
};

}  // namespace lazyck::rt
