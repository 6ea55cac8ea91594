// An open directory that only the user or root can write: what is listed, opened and removed in it is reached by its
// descriptor, so that no link and no exchange of a directory on the way to it leads elsewhere.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "files.h"
#include "text.h"

namespace lazyck::rt {

// What is told of a directory that is refused, with the reason.
using Refused = std::function<void(const std::string& path, const std::string& reason)>;

// Says that the directory is passed over, and why, once in this process.
void pass_over(const std::string& path, const std::string& reason);

class Directory {
 public:
    // Opens `path`, whose last name may be no link. Throws CompileError when it is missing, unreadable or refused.
    static Directory open(const std::string& path);

    // Opens the directory `name` in this one; nullopt when nothing, or a plain file, has that name. One that is refused
    // or cannot be read is told to `refused`, and is nullopt too.
    std::optional<Directory> find(const std::string& name, const Refused& refused = pass_over) const;

    // All names in it but "." and "..", in no order.
    Strings names() const;

    // The status of `name`, of a link itself; nullopt when there is none.
    std::optional<struct stat> status_of(const std::string& name) const;

    // Unlinks the file `name`. Returns 0 or an errno value.
    int remove_file(const std::string& name) const;

    const std::string& path() const { return m_path; }  // for messages
    int fd() const { return m_fd.get(); }

 private:
    Directory(UniqueFd fd, std::string path) : m_fd(std::move(fd)), m_path(std::move(path)) {}

    UniqueFd m_fd;
    std::string m_path;
};

}  // namespace lazyck::rt
