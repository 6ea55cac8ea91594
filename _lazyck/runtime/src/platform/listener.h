// Reports events to the program's own listener on a separate thread. The listener may take locks
// (Python's, for example) that are held by a thread which waits for lazyck. So nothing that a call
// waits for may wait for the listener.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace lazyck::rt {

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
    bool is_open();

    // Queues a message; messages are delivered in order. Drops it if the queue is full or the
    // listener is closed.
    void post(Message message);

    // Starts the thread if there is none. A child made by fork has no such thread, so this is
    // called before its first message. Call it while no lock is held.
    void ensure_thread();

    // These are handlers of fork.
    void before_fork();
    void after_fork_in_parent();
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

}  // namespace lazyck::rt
