// Names by which the loader is given open files, and by which others then see what it loaded.
#pragma once

#include <link.h>
#include <sys/stat.h>

#include <cstddef>
#include <string>

namespace lazyck::rt {

bool is_same(const struct stat& one, const struct stat& other);

// Returns the name to load the open file of this identity by, with room for a path of `size` bytes,
// or an empty string where no /proc shows this process.
std::string loader_name(int fd, const struct stat& identity, std::size_t size);

// Returns whether the loader knows the object by this name: not before `set_shown_name`, and not if
// the file was loaded under the number of another descriptor.
bool is_named(const link_map* map, const std::string& name);

// Replaces the descriptor's path, whose number is soon another file's, with `path` in the name by
// which debuggers, dladdr and stack traces look for the file. Returns false if the name is no
// longer a descriptor's path.
bool set_shown_name(const link_map* map, const std::string& path);

}  // namespace lazyck::rt
