// Loads a shared library by way of a copy in memory: for file systems that no code may be mapped from (noexec), and for
// those from which another host can take a file away while its code runs here.
#pragma once

#include <sys/stat.h>

#include <string>

#include "files.h"

namespace lazyck::rt {

// What keeps code from being mapped from the file system of `fd`, as an end of "its file system ...", or "".
std::string reason_to_copy(int fd);

// Whether /proc/self/maps shows a path with a blank in it, or cannot show it as it is.
bool has_blank(const std::string& path);
// The same of the path that the kernel has for an open file; false without /proc.
bool has_blank_in_path(int fd);

// A part of a path, from `/` to `/`, that changes nothing of it and is another one for each file: the dynamic loader
// takes what it is given under a name that it knows for what it has loaded under that. A descriptor's number is soon
// another file's.
std::string mark_in_path(const struct stat& file);

// An empty file in memory that code may be mapped from where the system allows any to be; else empty, with errno.
UniqueFd make_memory_file();

// Appends all that `from` has to `to`; false, with errno, where the system cannot.
bool copy_file(int from, int to);

// A copy of all that `fd` has; empty, with errno, where the system cannot.
UniqueFd copy_to_memory(int fd);

}  // namespace lazyck::rt
