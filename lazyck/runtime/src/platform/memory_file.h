// Loads a shared library from a copy in memory. This is for file systems from which no code may be
// mapped (noexec), and for those where another host can take a file away while its code runs here.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/text.h"
#include "platform/files.h"

namespace lazyck::rt {

// Returns the reason why code should not be mapped from the file system of `fd`, as the end of a
// sentence that begins with "its file system". The result is an empty string if there is no reason.
std::string reason_to_copy(int fd);

// Returns whether `path` has a blank or a newline, which /proc/self/maps cannot show unambiguously.
bool has_blank(const std::string& path);
// Returns whether the path that the kernel reports for an open file has such a character. Returns
// false without /proc.
bool has_blank_in_path(int fd);

// Returns a part of a path, from `/` to `/`, that does not change what the path leads to, but is
// unique to each file. The dynamic loader takes a path that it knows for the library that it loaded
// under this path, and the number of a descriptor is soon reused for another file.
std::string mark_in_path(const struct stat& file);

// Returns an empty file in memory. Code may be mapped from one that `has_code`, if the system
// permits that at all. On failure the result is an empty descriptor, with errno.
UniqueFd make_memory_file(bool has_code);

// Appends all of `from` to `to`. Returns false, with errno, on failure.
bool copy_file(int from, int to);

// Returns a copy in memory of all of `fd`. On failure the result is an empty descriptor, with
// errno.
UniqueFd copy_to_memory(int fd);

}  // namespace lazyck::rt
