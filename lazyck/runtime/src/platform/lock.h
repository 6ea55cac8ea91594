// Provides locks between processes, by flock(2). The kernel frees a lock when its holder ends. The
// files are never unlinked: two processes could then hold locks on two files of one name.
#pragma once

#include <functional>
#include <string>

#include "platform/files.h"
#include "platform/messages.h"

namespace lazyck::rt {

// Holds a file's lock until the object is destroyed. It is made on a thread with descriptors of its
// own (run_apart), so that no child that the program forks holds it, too.
class FileLock {
 public:
    enum class State { held, busy, unusable };

    // Tries once to take the lock. The state `unusable` means that this file system has no locks
    // (NFS without its lock service); `error` returns the errno. Throws CompileError if the file
    // cannot be opened.
    explicit FileLock(const std::string& path);
    ~FileLock();

    State state() const { return m_state; }
    int error() const { return m_error; }
    State retry();
    // Replaces the file's contents by `text`. The text only informs readers, so a failure is
    // ignored.
    void write(const std::string& text);

 private:
    UniqueFd m_fd;
    State m_state = State::busy;
    int m_error = 0;
};

constexpr char k_stopped[] = "(stopped)";

// Returns the process that holds the lock of the file at `path`, as the kernel reports it:
// "process 123" or "process 123 (stopped)". The result is an empty string if the kernel does not
// report one.
std::string lock_holder(const std::string& path);

// The lock of one blob. It is not held after `is_made` returned true, after the time is up, or if
// the file system has no locks. The caller then works without it, which is safe because an entry is
// published atomically.
struct BlobLock : FileLock {
    // Waits until the lock is free, but at most `patience` seconds, and no longer than until
    // `is_made` returns true, which means that the blob needs no compile. Reports who holds the
    // lock whenever a WaitNotice is due. Throws CompileError if the file cannot be opened.
    BlobLock(const std::string& path, const Subject& subject, double patience, const std::function<bool()>& is_made);
};

}  // namespace lazyck::rt
