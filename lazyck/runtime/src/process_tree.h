// A process and its descendants, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <vector>

namespace lazyck::rt {

// `root` and all that descends from it. A process whose parent has ended is not found any more.
std::vector<pid_t> process_tree(pid_t root);

// Kills `root` and its descendants, those too that are started meanwhile.
void kill_tree(pid_t root);

// Kilobytes of memory that `root` and its descendants use now; 0 when it is gone or cannot be seen from here.
long tree_rss_kib(pid_t root);

}  // namespace lazyck::rt
