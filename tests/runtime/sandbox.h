// These functions make sandboxes with seccomp(2) for the calling thread and those that it starts
// later. Each returns 0, or -1 with errno.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// No kernel knows this call. It ends what `watch_calls` watches.
enum { END_OF_WATCH = 70001 };

// Makes another thread write to the file `path` the numbers of all system calls that this thread
// makes until call END_OF_WATCH. It does not use ptrace(2), because the runtime does more if a
// debugger is attached.
int watch_calls(const char* path);

// Makes the kernel kill the process at a call that starts a program or a process, or makes or uses
// a socket.
int forbid_starting(void);

// Makes every call except the `count` ones in `numbers` fail with EPERM.
int allow_only(const int* numbers, size_t count);

#ifdef __cplusplus
}
#endif
