// Locks between processes, by flock(2): the kernel frees them with their holder. The files are never unlinked: two
// processes could then hold locks on two files of one name.
#pragma once

#include <functional>
#include <string>

#include "files.h"
#include "messages.h"

namespace lazyck::rt {

// The open file of a lock, which a child made by fork closes.
class LockDescriptor {
 public:
    // Empty (-1) with errno when it cannot be opened.
    explicit LockDescriptor(const std::string& path);
    LockDescriptor(const LockDescriptor&) = delete;
    LockDescriptor& operator=(const LockDescriptor&) = delete;
    ~LockDescriptor();

    int get() const { return m_fd.get(); }

 private:
    UniqueFd m_fd;
};

// A file's lock, held until the object's end. A child made by fork does not hold it.
class FileLock {
 public:
    enum class State { held, busy, unusable };

    // Tries once. `unusable`: this file system does not lock (NFS without its lock service); `error` says why.
    explicit FileLock(const std::string& path);
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;
    ~FileLock();

    State state() const { return m_state; }
    int error() const { return m_error; }
    // Tries again.
    State retry();
    // What the file says is replaced by `text`. Only for readers who want to know more: failure is no error.
    void write(const std::string& text);

 private:
    LockDescriptor m_fd;
    State m_state = State::busy;
    int m_error = 0;
};

constexpr char k_stopped[] = "(stopped)";

// Which process holds the lock of the file at `path`, as the kernel knows it: "process 123", or "process 123
// (stopped)";
// "" where it does not tell.
std::string lock_holder(const std::string& path);

// The lock of one blob, waited for.
class BlobLock {
 public:
    // Waits at most `patience` seconds, or until `is_made` answers that there is nothing left to lock for; says as a
    // WaitNotice is due who holds it. Throws CompileError when the file
    // cannot be opened.
    BlobLock(const std::string& path, const Subject& subject, double patience, const std::function<bool()>& is_made);

    // Not held after `is_made` said so, after the time is up, or where the file system does not lock: the caller then
    // works without, since publishing an entry is atomic in any case.
    bool is_held() const { return m_lock.state() == FileLock::State::held; }

 private:
    FileLock m_lock;
};

// Handler of fork, with all global locks taken: a child must not keep the locks of threads that it does not have.
void close_locks_in_child();

}  // namespace lazyck::rt
