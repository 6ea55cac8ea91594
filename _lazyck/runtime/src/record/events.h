// Reports what happens to blobs (compiled, waited for, loaded) to the cache's history, a trace file
// (LAZYCK_TRACE) and the program's own listener.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
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

namespace lazyck::rt {

struct Event {
    const char* kind = "";  // "compile", "wait" or "load"
    std::string library, blob, arch;
    double start = 0;    // seconds since 1970
    double seconds = 0;  // duration
    bool has_failed = false;
    std::string what;        // a failure's reason, what was waited for, or where a load came from
    long peak_kib = 0;       // of a compile: its largest process; 0: unknown
    std::uint64_t size = 0;  // bytes of the entry; 0: unknown
    double expected = 0;     // seconds that a compile was expected to take; 0: unknown
};

// Reports events to the program's own listener on a separate thread. The listener may take locks
// (Python's, for example) that are held by a thread which waits for lazyck. So nothing that a call
// waits for may wait for the listener.
class Listener {
 public:
    using Message = std::function<void()>;  // reports one event

    // Accepts messages until `close`, and starts the thread. Returns false if the system cannot
    // start one.
    bool open();
    // Stops accepting messages, then waits at most `seconds` until the listener was told all queued
    // ones. Returns whether it was. The listener itself may call this function, which then does not
    // wait.
    bool close(double seconds);

    // Queues a message; messages are delivered in order. Drops it if the queue is full or the
    // listener is closed.
    void post(Message message);

    // Starts the thread if there is none. A child made by fork has no such thread, so this is
    // called before its first message. Call it while no lock is held.
    void ensure_thread();

    void before_fork() { m_queue->mutex.lock(); }
    void after_fork_in_parent() { m_queue->mutex.unlock(); }
    void after_fork_in_child();

 private:
    // Holds what is shared with the thread, which may outlive the listener.
    struct Queue {
        std::mutex mutex;
        std::condition_variable changed;
        std::deque<Message> messages;
        bool is_open = false;
        bool is_telling = false;
        bool has_thread = false;
        std::size_t dropped = 0;
        std::thread::id teller;
    };

    static void run(const std::shared_ptr<Queue>& queue);

    std::shared_ptr<Queue> m_queue = std::make_shared<Queue>();
};

// Writes the file that LAZYCK_TRACE names: Chrome's trace events, for Perfetto. Several processes
// share it.
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

class Events {
 public:
    // Gets each event when it has ended, and a compile also when it begins (then `seconds` is 0).
    // It is called in order, some time later, on a thread of its own. Must not throw.
    using Callback = std::function<void(bool has_ended, const Event&)>;

    explicit Events(std::string trace) : m_trace(std::move(trace)) {}

    // Replaces the listener. An empty function means that there is none. Before this returns, the
    // earlier listener gets all events that have happened so far. Throws CompileError if that takes
    // it too long, or if no thread can be started for the new one.
    void set_listener(Callback listener);
    // Must be called while no lock is held, before events are reported.
    void prepare() { m_listener.ensure_thread(); }
    // Reports the beginning of an event that takes long to the listener.
    void begin(const Event& event) { post(false, event); }
    // Reports an event that is over to everyone. `history` is the file that keeps it (see
    // events.cpp), or an empty string if there is none.
    void tell(const Event& event, const std::string& history);
    void flush();
    // Ends the reporting: writes what is left, and stops the listener.
    void close();

    // Handlers of fork. Events that have not been written are left to the parent.
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
    std::vector<Pending> m_pending;  // for the history file; formatted when they are written
    std::string m_history;
    std::shared_ptr<const Callback> m_callback;
    Listener m_listener;
};

// An event under way, which begins and ends with the object. It has failed unless succeed() is
// called.
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
    const std::chrono::steady_clock::time_point m_start = std::chrono::steady_clock::now();
};

}  // namespace lazyck::rt
