// An open directory that only the user or root can write. What is listed, opened and removed in it
// is reached by its descriptor, so that no link and no exchanged directory on the way leads
// elsewhere.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "platform/files.h"

namespace lazyck::rt {

// Gets the path of a directory that is refused, and the reason.
using Refused = std::function<void(const std::string& path, const std::string& reason)>;

// Says, once in this process, that the directory is ignored, and why.
void pass_over(const std::string& path, const std::string& reason);

class Directory {
 public:
    // Opens `path`, whose last name must not be a link. Throws CompileError if it is missing,
    // unreadable or refused.
    static Directory open(const std::string& path);

    // Opens the directory `name` in this one. Returns nullopt if `name` does not exist or is a
    // plain file. If it is refused or cannot be read, calls `refused` and returns nullopt.
    std::optional<Directory> find(const std::string& name, const Refused& refused = pass_over) const;

    // Returns all names in it but "." and "..", in no particular order.
    Strings names() const { return names_in(m_fd.get()); }

    // Returns the status of `name` (for a link, that of the link itself), or nullopt if it does not
    // exist.
    std::optional<struct stat> status_of(const std::string& name) const;

    // Unlinks the file `name`. Returns 0 or an errno value.
    int remove_file(const std::string& name) const { return unlinkat(m_fd.get(), name.c_str(), 0) == 0 ? 0 : errno; }

    const std::string& path() const { return m_path; }  // for messages
    int fd() const { return m_fd.get(); }

 private:
    Directory(UniqueFd fd, std::string path) : m_fd(std::move(fd)), m_path(std::move(path)) {}

    UniqueFd m_fd;
    std::string m_path;
};

}  // namespace lazyck::rt
