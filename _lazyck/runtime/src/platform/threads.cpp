#include "platform/threads.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <thread>
#include <utility>

#include "platform/floating_point.h"

namespace lazyck::rt {

BlockedSignals::BlockedSignals() : m_before() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &m_before);
}

BlockedSignals::~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &m_before, nullptr); }

bool start_thread(std::function<void()> work) {
    const BlockedSignals blocked;
    try {
        std::thread([work = std::move(work)] {
            const DefaultFloatingPoint ours;
            work();
        }).detach();
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

long thread_number() { return syscall(SYS_gettid); }

}  // namespace lazyck::rt
