// One lock per blob, held between processes by flock(2): the kernel frees it with its holder.
#pragma once

#include <string>

#include "files.h"

namespace lazyck::rt {

class BlobLock {
 public:
    // Waits for the lock file at `path`; after a few seconds and then every half minute says who holds it.
    // `what` names the blob. Throws CompileError when the file cannot be used.
    BlobLock(const std::string& path, const std::string& what);
    BlobLock(const BlobLock&) = delete;
    BlobLock& operator=(const BlobLock&) = delete;
    ~BlobLock();

 private:
    UniqueFd m_fd;
};

}  // namespace lazyck::rt
