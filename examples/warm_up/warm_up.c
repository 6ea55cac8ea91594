/* Makes blobs of a lazy library ready in the background, from C. It looks up the functions that
 * lazyck.h declares in the library.
 *
 *     cc warm_up.c -o warm_up -I "$(lazyck --include-dir)" -ldl
 *     warm_up LIBRARY prefetch BLOB...    makes these blobs ready
 *     warm_up LIBRARY replay PROFILE      makes the profile's blobs ready
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lazyck.h"

static void* g_library;

static void* look_up(const char* name) {
    void* const function = dlsym(g_library, name);
    if (function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return function;
}

/* Declares a pointer `name` of the own type of the function lazyck_`name`. */
#define FROM_LIBRARY(name) __typeof__(&lazyck_##name) const name = (__typeof__(&lazyck_##name))look_up("lazyck_" #name)

static void show(const lazyck_event* event, void* data) {
    (void)data;
    if (strcmp(event->kind, "compile") == 0 && event->has_ended) {
        printf("%s took %.1f s, %llu KiB\n", event->blob, event->seconds, (unsigned long long)event->peak_kib);
    }
}

int main(int argc, char** argv) {
    if (argc < 4 || (strcmp(argv[2], "prefetch") != 0 && strcmp(argv[2], "replay") != 0)) {
        fprintf(stderr, "usage: warm_up LIBRARY prefetch BLOB... | replay PROFILE\n");
        return 2;
    }
    g_library = dlopen(argv[1], RTLD_NOW);
    if (g_library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    FROM_LIBRARY(abi_version);
    FROM_LIBRARY(set_listener);
    FROM_LIBRARY(job_start);
    FROM_LIBRARY(job_replay);
    FROM_LIBRARY(job_wait);
    FROM_LIBRARY(job_error);
    FROM_LIBRARY(job_free);
    FROM_LIBRARY(last_error);
    if (abi_version() < 2) {
        fprintf(stderr, "%s was linked by an older lazyck\n", argv[1]);
        return 2;
    }
    set_listener(show, NULL);
    const int is_replay = strcmp(argv[2], "replay") == 0;
    lazyck_job* const job =
        is_replay ? job_replay(argv[3], 0) : job_start((const char* const*)argv + 3, (size_t)argc - 3, 0);
    if (job == NULL) {
        fprintf(stderr, "%s\n", last_error());
        return 1;
    }
    lazyck_progress progress = {0};
    progress.size = sizeof progress;
    /* With a negative time it would block until the end; this polls, as an event loop does. */
    while (job_wait(job, 0.1, &progress) == 0) {
    }
    /* Events are delivered later, on another thread: this waits for those that are over. */
    set_listener(NULL, NULL);
    printf("%llu of %llu blobs ready\n", (unsigned long long)progress.ready, (unsigned long long)progress.total);
    const int has_failed = progress.failed != 0;
    if (has_failed) fprintf(stderr, "%s\n", job_error(job));
    job_free(job);
    return has_failed;
}
