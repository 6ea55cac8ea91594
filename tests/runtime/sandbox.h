// Sandboxes by seccomp(2) for the calling thread and those that it starts later. Each returns 0, or -1 with errno.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// No kernel knows this call: it ends what `watch_calls` watches.
enum { END_OF_WATCH = 70001 };

// Has another thread write into the file `path` the numbers of all system calls that this one makes until call
// END_OF_WATCH. Not by ptrace(2): the runtime does more where a debugger is attached.
int watch_calls(const char* path);

// From now on the process is killed at a call that starts a program or a process, or makes or uses a socket.
int forbid_starting(void);

// From now on every call but the `count` of `numbers` fails with EPERM.
int allow_only(const int* numbers, size_t count);

#ifdef __cplusplus
}
#endif
