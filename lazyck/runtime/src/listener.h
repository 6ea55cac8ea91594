// The program's own listener, told of events on a thread of its own: it may take locks that a thread holds which waits
// for what we do (Python's, for example), so nothing that a call waits for may wait for it.
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
    using Message = std::function<void()>;  // tells one event

    // Has messages taken from now on. Starts the thread; false: the system has none to give.
    bool open();
    // Has none taken, and waits until all that were taken are told, at most `seconds`; returns whether they are. The
    // listener itself may call this: then it does not wait for its own end.
    bool close(double seconds);
    bool is_open();

    // Tells it later, in order. One too many is dropped.
    void post(Message message);

    // A child made by fork has no such thread: there one is started before the first message. To be called while no
    // lock is held.
    void ensure_thread();

    // Handlers of fork.
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

 private:
    // Shared with the thread, which may outlive its use.
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
