// Makes copies of entries that have names, for GPU runtimes that open the file that a blob is
// mapped from. HIP 6.0 to 6.2 looks the name up in /proc/self/maps and cuts it at the first blank.
// The name of a memory file there cannot be opened.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "platform/files.h"
#include "platform/staging.h"

namespace lazyck::rt {

class NamedCopies {
 public:
    // The directories of the copies are named after `name`.
    explicit NamedCopies(std::string name) : m_places(std::move(name)) {}

    // Returns a copy of the file `fd` in a directory of this process alone. The directory is on a
    // file system that code may be mapped from, and its path has no blank. The copy keeps its name
    // until the process ends, since HIP may open it as late as at a launch. The result is empty if
    // no directory is suitable.
    UniqueFd make(int fd);

    // Removes the copies at the end of the process, unless a child made by fork still uses them.
    void close();

 private:
    std::mutex m_mutex;
    PrivatePlaces m_places;
    unsigned m_count = 0;
};

}  // namespace lazyck::rt
