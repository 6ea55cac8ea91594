/* The C interface that every lazy library exports. Each library's functions work on that library
 * only: look them up by dlsym(handle of the library, name), or link against the library.
 *
 * History: version 1 is the first. Version 2 adds blobs, prefetching in the background, records and
 * a listener. Version 3 adds the end of warm-up, waiting for what is in flight, and expected times.
 */
#ifndef LAZYCK_H
#define LAZYCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts since the library's first lazy call. Set `size` to sizeof(lazyck_stats) before the call.
 * At most `size` bytes are filled; a later version only adds members at the end. */
typedef struct lazyck_stats {
    uint64_t size;
    uint64_t blobs;          /* in the manifest */
    uint64_t symbols;        /* that go through slots */
    uint64_t loaded;         /* blobs whose slots are stored */
    uint64_t hits;           /* blobs found in the cache */
    uint64_t misses;         /* blobs not found in the cache at first */
    uint64_t compiles;       /* compiler runs that succeeded */
    uint64_t failures;       /* compiler runs that failed */
    uint64_t damaged;        /* entries that were moved aside as damaged */
    uint64_t compile_ns;     /* wall time of all compiles */
    uint64_t remote_hits;    /* blobs that came from a remote cache */
    uint64_t remote_refused; /* entries of remote caches that were wrong or not signed */
    uint64_t remote_skipped; /* times that a remote cache was down or slow */
} lazyck_stats;

/* Returns the version of this interface (3). */
int lazyck_abi_version(void);

/* Sets the cache directory for blobs that are not loaded yet, in place of LAZYCK_CACHE_DIR. Returns
 * 0, or -1 if the directory cannot be used (see lazyck_last_error). */
int lazyck_set_cache_dir(const char* path);

/* Fills `stats`. Returns 0, or -1 if `stats` is too small or the environment is wrong. Looks
 * nothing up. */
int lazyck_get_stats(lazyck_stats* stats);

/* Compiles (if needed) and loads the blobs whose names match the shell pattern, several at a time.
 * Returns the number of blobs that are ready, or -1 if one of them failed or none matches (see
 * lazyck_last_error). */
int lazyck_prefetch(const char* pattern);

/* lazyck_blob_count returns how many blobs the library has, or -1. lazyck_blob_name returns the
 * name of one, or NULL if `index` is not less than that number. */
int lazyck_blob_count(void);
const char* lazyck_blob_name(int index);

/* Returns 1 if a call of the blob would find it compiled, 0 if not, -1 if no blob has this name. */
int lazyck_is_cached(const char* blob);

/* With 1, a blob that is not cached is an error from now on and is not compiled, as under
 * LAZYCK_JIT=off. With 0, it is compiled again. Returns the previous setting, or -1. */
int lazyck_forbid_jit(int is_forbidden);

/* With 1, declares that warm-up is over: from now on a call that has to compile is an error under
 * LAZYCK_JIT=error, and gets a warning under LAZYCK_JIT=warn. With 0, the library warms up again;
 * with -1, nothing changes. Returns the previous setting. It applies to this library, and to lazy
 * libraries whose first lazy call in this process comes later. */
int lazyck_ready(int is_ready);

/* Waits until nothing of this library is in flight any more, for at most `seconds` (0: only looks,
 * negative: for ever): calls that make a blob ready, jobs, and what is compiled in the background.
 * Use it before a fork, a graph capture or a health check. Returns 1 if nothing is in flight, 0 if
 * something still is, or -1. Do not call it from an initializer of a blob, for which it would
 * wait. */
int lazyck_drain(double seconds);

/* Records the blobs that are called from now on in the profile `path`, like LAZYCK_RECORD, but for
 * a part of a run. NULL ends the record. Returns 0, or -1. The library then stays loaded for as
 * long as the process lives. */
int lazyck_record(const char* path);

/* -- prefetching in the background: a job is a set of blobs that a bounded number of threads makes
 * ready. A call of a blob that is in flight waits for that blob only. The library then stays loaded
 * for as long as the process lives. */

typedef struct lazyck_job lazyck_job;

/* Set `size` to sizeof(lazyck_progress) before each call. */
typedef struct lazyck_progress {
    uint64_t size;
    uint64_t total;  /* blobs of the job */
    uint64_t ready;  /* a call would find them loaded */
    uint64_t failed; /* see lazyck_job_error */
    uint64_t is_over;
    double left; /* expected seconds until the job is over; negative: unknown */
} lazyck_progress;

/* Begins a job for these blobs. Cached blobs come first, in this order. `workers` is the number of
 * threads; with 0, LAZYCK_JOBS counts. Returns NULL on failure, for example if no blob has one of
 * the names. */
lazyck_job* lazyck_job_start(const char* const* blobs, size_t count, unsigned workers);

/* Begins a job for the blobs of a profile. Of those that must be compiled, the ones that took
 * longest come first. Blobs that the library does not have are left out, with a warning. Returns
 * NULL if the profile cannot be read. */
lazyck_job* lazyck_job_replay(const char* profile, unsigned workers);

/* Waits until the job is over, for at most `seconds` (0: only looks, negative: for ever), and fills
 * `progress`, which may be NULL. Returns 1 if the job is over, 0 if not, or -1. In a child made by
 * fork, which has none of the threads, the job is over. */
int lazyck_job_wait(lazyck_job* job, double seconds, lazyck_progress* progress);

/* Returns the error of the first blob that failed, or an empty string if none has. It is valid
 * until the job is freed or waited for again. */
const char* lazyck_job_error(lazyck_job* job);

/* Begins nothing more. What is under way is finished in the background. */
void lazyck_job_cancel(lazyck_job* job);

/* Cancels and frees the job. NULL is allowed. */
void lazyck_job_free(lazyck_job* job);

/* -- what happens ------------------------------------------------------------------------------ */

/* An event. A later version only adds members at the end. Texts are valid during the call only. */
typedef struct lazyck_event {
    uint64_t size;
    const char* kind;    /* "compile", "wait" or "load" */
    const char* library; /* names as the manifest has them */
    const char* blob;
    const char* arch;
    const char* what;  /* a failure's reason, what was waited for, or where a load came from */
    double start;      /* seconds since 1970 */
    double seconds;    /* duration; 0 at the beginning */
    uint64_t peak_kib; /* of a compile: memory of its largest process; 0: unknown */
    uint64_t bytes;    /* of the entry; 0: unknown */
    int has_ended;     /* 0 if a compile begins */
    int has_failed;
    double expected; /* seconds that a compile was expected to take; 0: unknown */
} lazyck_event;

/* A listener is called on a thread of the library's own, with one event after the other, some time
 * after each happened. No call waits for the listener, so it may take any lock. It must not throw,
 * nor call blobs that are not loaded. */
typedef void (*lazyck_listener)(const lazyck_event* event, void* data);

/* Makes `listener` get all events of this library, in place of the earlier one; with NULL, there is
 * none. The earlier listener first gets all events that have happened so far, and is not called any
 * more when this returns (unless it makes this call itself). So hold no lock that it takes. Returns
 * 0, or -1 if the earlier listener is still at an event after ten seconds, or if the system cannot
 * start a thread. */
int lazyck_set_listener(lazyck_listener listener, void* data);

/* Makes the next call of each blob that the compiler refused compile again. Without this, a refused
 * blob is not compiled again in this process: later calls fail at once with the same message.
 * (After a failure that may pass, such as a full disk or a missing compiler, the next call tries
 * again anyway.) Returns the number of these blobs, or -1. */
int lazyck_clear_failures(void);

/* Returns the error of this thread's last failed call, or an empty string if none has failed. It is
 * valid until the next failure. */
const char* lazyck_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
