// Finds in /proc what this process and its descendants do.
#pragma once

#include <sys/types.h>

#include <vector>

namespace lazyck::rt {

// Returns whether a debugger is attached to this process. The answer may be a second old.
bool is_traced();

// Returns `root` and all its descendants. A process whose parent has ended is not found.
std::vector<pid_t> process_tree(pid_t root);

// Kills `root` and its descendants, including those that are started meanwhile.
void kill_tree(pid_t root);

// Returns the kilobytes of memory that `root` and its descendants use, or 0 if `root` has ended or
// is not visible.
long tree_rss_kib(pid_t root);

}  // namespace lazyck::rt
