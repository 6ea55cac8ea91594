/* The C interface that every lazy library exports. Each library's functions work on that library only: look them
 * up by dlsym(handle of the library, name), or link against the library.
 *
 * History: version 1, the first. Version 2: blobs, prefetching in the background, records, a listener.
 */
#ifndef LAZYCK_H
#define LAZYCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts since the library's first lazy call. Set `size` to sizeof(lazyck_stats) before the call; a later version only
 * adds members at the end and fills no more than `size` bytes. */
typedef struct lazyck_stats {
    uint64_t size;
    uint64_t blobs;          /* in the manifest */
    uint64_t symbols;        /* that go through slots */
    uint64_t loaded;         /* blobs whose slots are stored */
    uint64_t hits;           /* blobs found in the cache */
    uint64_t misses;         /* blobs not found at the first look */
    uint64_t compiles;       /* compilers' runs that succeeded */
    uint64_t failures;       /* compilers' runs that failed */
    uint64_t damaged;        /* entries that were moved aside */
    uint64_t compile_ns;     /* wall time of all compiles */
    uint64_t remote_hits;    /* blobs that came from a remote cache */
    uint64_t remote_refused; /* entries of remote caches that were not what they should be, or not signed */
    uint64_t remote_skipped; /* times that a remote cache was down or slow */
} lazyck_stats;

/* Version of this interface (2). */
int lazyck_abi_version(void);

/* Cache directory for blobs that are not loaded yet; overrides LAZYCK_CACHE_DIR. 0, or -1 when the directory cannot be
 * used (see lazyck_last_error). */
int lazyck_set_cache_dir(const char* path);

/* 0, or -1 when `stats` is too small or the environment is wrong. Looks nothing up. */
int lazyck_get_stats(lazyck_stats* stats);

/* Compiles (if needed) and loads the blobs whose names match the shell pattern; several at a time. Number of blobs that
 * are ready, or -1: one of them failed, or none matches (see lazyck_last_error). */
int lazyck_prefetch(const char* pattern);

/* How many blobs the library has, or -1; and the name of one, NULL from that number on. */
int lazyck_blob_count(void);
const char* lazyck_blob_name(int index);

/* Whether a call of the blob now would find it compiled: 1 or 0; -1 when no blob has this name. */
int lazyck_is_cached(const char* blob);

/* 1: what is not cached is an error from now on instead of a compile (LAZYCK_DISABLE_JIT is where it starts); 0:
 * compile again. What it was before, or -1. */
int lazyck_forbid_jit(int is_forbidden);

/* Has the blobs that are called from now on recorded in the profile `path`: LAZYCK_RECORD's way, for a part of a run.
 * NULL ends the record. 0, or -1. The library then stays loaded for as long as the process lives. */
int lazyck_record(const char* path);

/* From now on a blob's first call has those blobs made ready, in the background and one at a time, that the profile
 * shows to follow it: those of which the first call was among the next four in at least half of the processes that
 * called it. They are compiled only if LAZYCK_JOBS is more than 1. NULL ends that. 0, or -1 when the profile cannot be
 * read. The library then stays loaded for as long as the process lives. */
int lazyck_speculate(const char* profile);

/* -- prefetching in the background: a job is a set of blobs, made ready by a bounded number of threads. A call of a
 * blob that is in flight waits for that one only. The library then stays loaded for as long as the process lives. */

typedef struct lazyck_job lazyck_job;

/* Set `size` to sizeof(lazyck_progress) before each call. */
typedef struct lazyck_progress {
    uint64_t size;
    uint64_t total;  /* blobs of the job */
    uint64_t ready;  /* that calls would find loaded */
    uint64_t failed; /* see lazyck_job_error */
    uint64_t is_over;
} lazyck_progress;

/* Begins a job for these blobs, what is cached first, in this order; `workers` threads, 0: LAZYCK_JOBS. NULL on
 * failure, such as a name that no blob has. */
lazyck_job* lazyck_job_start(const char* const* blobs, size_t count, unsigned workers);

/* Begins a job for the blobs of a profile: what is to be compiled begins with what took longest. Blobs that the library
 * does not have are left out, with a warning. NULL when the profile cannot be read. */
lazyck_job* lazyck_job_replay(const char* profile, unsigned workers);

/* Waits until the job is over, at most so many seconds (0: only looks, negative: for ever), and tells how far it is
 * (`progress` may be NULL). 1: over, 0: not yet, -1. In a child made by fork, which has none of the threads, it is
 * over. */
int lazyck_job_wait(lazyck_job* job, double seconds, lazyck_progress* progress);

/* What the first blob that failed had to say; "" if none has. Valid until the job is freed or waited for again. */
const char* lazyck_job_error(lazyck_job* job);

/* Begins nothing more; what is under way is finished in the background. */
void lazyck_job_cancel(lazyck_job* job);

/* Cancels and frees. NULL is allowed. */
void lazyck_job_free(lazyck_job* job);

/* -- what happens ------------------------------------------------------------------------------------------------ */

/* A later version only adds members at the end. Texts are valid during the call only. */
typedef struct lazyck_event {
    uint64_t size;
    const char* kind;    /* "compile", "wait" or "load" */
    const char* library; /* names as the manifest has them */
    const char* blob;
    const char* arch;
    const char* what;  /* of a failure why, of a wait for what, of a load from where */
    double start;      /* seconds since 1970 */
    double seconds;    /* that it took; 0 as it begins */
    uint64_t peak_kib; /* of a compile: memory of its largest process; 0: unknown */
    uint64_t bytes;    /* of the entry; 0: unknown */
    int has_ended;     /* 0: a compile begins */
    int has_failed;
} lazyck_event;

/* Called on a thread of the library's own, one event after the other, some time after each happened. No call waits for
 * it, so it may take any lock. It must not throw, nor call blobs that are not loaded. */
typedef void (*lazyck_listener)(const lazyck_event* event, void* data);

/* Has `listener` hear of all events of this library, in place of the one before; NULL: none. The one before is told
 * first of all that happened until now, and is not called any more when this returns (unless it is the one who calls
 * this): so hold no lock that it takes. 0, or -1: it is still at an event after ten seconds, or the system has no
 * thread to give. */
int lazyck_set_listener(lazyck_listener listener, void* data);

/* A blob that the compiler refused is not compiled again in this process: later calls fail at once with the same
 * message. (What may pass, such as a full disk or a compiler that is missing, is tried again by the next call anyway.)
 * This has the next call of each such blob compile again. How many there were, or -1. */
int lazyck_clear_failures(void);

/* What the last failed call of this thread had to say; "" after none. Valid until the next failure. */
const char* lazyck_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
