/* The C interface that every lazy library exports. Each library's functions work on that library only: look them
 * up by dlsym(handle of the library, name), or link against the library.
 *
 * History: version 1, the first.
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
    uint64_t blobs;      /* in the manifest */
    uint64_t symbols;    /* that go through slots */
    uint64_t loaded;     /* blobs whose slots are stored */
    uint64_t hits;       /* blobs found in the cache */
    uint64_t misses;     /* blobs not found at the first look */
    uint64_t compiles;   /* compilers' runs that succeeded */
    uint64_t failures;   /* compilers' runs that failed */
    uint64_t damaged;    /* entries that were moved aside */
    uint64_t compile_ns; /* wall time of all compiles */
} lazyck_stats;

/* Version of this interface (1). */
int lazyck_abi_version(void);

/* Cache directory for blobs that are not loaded yet; overrides LAZYCK_CACHE_DIR. 0, or -1 when the directory cannot be
 * used (see lazyck_last_error). */
int lazyck_set_cache_dir(const char* path);

/* 0, or -1 when `stats` is too small or the environment is wrong. Looks nothing up. */
int lazyck_get_stats(lazyck_stats* stats);

/* Compiles (if needed) and loads the blobs whose names match the shell pattern; several at a time. Number of blobs that
 * are ready, or -1: one of them failed, or none matches (see lazyck_last_error). */
int lazyck_prefetch(const char* pattern);

/* A blob that the compiler refused is not compiled again in this process: later calls fail at once with the same
 * message. (What may pass, such as a full disk or a compiler that was killed, is tried again by the next call anyway.)
 * This has the next call of each such blob compile again. How many there were, or -1. */
int lazyck_clear_failures(void);

/* What the last failed call of this thread had to say; "" after none. Valid until the next failure. */
const char* lazyck_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
