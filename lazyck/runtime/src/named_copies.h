// Copies of entries under names of their own, for GPU runtimes that open the file that a blob is mapped from: HIP 6.0
// to 6.2 looks its name up in /proc/self/maps, where a memory file has none that can be opened, and cuts it at the
// first blank.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "files.h"
#include "private_place.h"

namespace lazyck::rt {

class NamedCopies {
 public:
    // `name` is what the directories of the copies are named after.
    explicit NamedCopies(std::string name) : m_name(std::move(name)) {}

    // A copy of the file `fd` in a directory of this process alone, on a file system that code may be mapped from, with
    // no blank in its path. It has its name to the process's end, since HIP may open it as late as at a launch. Empty
    // where no place will do.
    UniqueFd make(int fd);

    // At the process's end: removes the copies, unless a child made by fork still uses them.
    void close();

 private:
    std::string place_below(const std::string& parent);

    const std::string m_name;
    std::mutex m_mutex;
    std::vector<PrivatePlace> m_places;
    unsigned m_count = 0;
};

}  // namespace lazyck::rt
