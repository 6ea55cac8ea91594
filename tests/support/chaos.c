/* This LD_PRELOAD library makes threads sleep at random around the calls by which threads and
 * processes synchronize:
 *     CHAOS_SEED     seed of the random choices; without it nothing sleeps
 *     CHAOS_PROCESS  number of the process, so that processes sleep at different calls
 *     CHAOS_LONGEST  longest sleep in microseconds (3000)
 *     CHAOS_BREAK    "flock" makes flock succeed without a lock, to show that faults are found
 * Most of these calls are rare, so many of them sleep. Calls for mutexes are frequent, so few of
 * them sleep. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_ulong g_calls;
static unsigned long g_seed, g_longest;
static int g_sleeps, g_breaks_flock;

static unsigned long number(const char* name, unsigned long otherwise) {
    const char* text = getenv(name);
    return text == NULL || *text == 0 ? otherwise : strtoul(text, NULL, 10);
}

__attribute__((constructor)) static void read_environment(void) {
    const char* broken = getenv("CHAOS_BREAK");
    g_sleeps = getenv("CHAOS_SEED") != NULL;
    g_seed = (number("CHAOS_SEED", 0) << 32) + (number("CHAOS_PROCESS", 0) << 24);
    g_longest = number("CHAOS_LONGEST", 3000);
    g_breaks_flock = broken != NULL && strcmp(broken, "flock") == 0;
}

/* splitmix64 */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Sleeps in one of `times` calls, mostly for a short time. */
static void maybe_sleep(unsigned times) {
    if (!g_sleeps) return;
    const uint64_t dice = mix(g_seed + atomic_fetch_add(&g_calls, 1));
    if (dice % times != 0) return;
    const uint64_t most = (dice >> 20) % 8 == 0 ? g_longest : g_longest / 8;
    const struct timespec pause = {0, (long)((dice >> 24) % (most + 1)) * 1000};
    /* The C library's function would not do: whoever starts a compiler calls this from a process
       that shares its memory. */
    syscall(SYS_nanosleep, &pause, NULL);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The C library has two versions of each of these functions. */
static void* condition_function(const char* name) {
    void* const found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    return found != NULL ? found : dlsym(RTLD_NEXT, name);
}

int flock(int fd, int operation) {
    maybe_sleep(2);
    const int result = g_breaks_flock ? 0 : (int)syscall(SYS_flock, fd, operation);
    maybe_sleep(2);
    return result;
}

int openat(int directory, const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    maybe_sleep(4);
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
    maybe_sleep(1);
    const int result = REAL(renameat)(from_directory, from, to_directory, to);
    maybe_sleep(1);
    return result;
}

int fsync(int fd) {
    maybe_sleep(1);
    return REAL(fsync)(fd);
}

void* dlopen(const char* path, int flags) {
    maybe_sleep(2);
    void* const handle = REAL(dlopen)(path, flags);
    maybe_sleep(2);
    return handle;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
    static __typeof__(&pthread_mutex_lock) s_real;
    if (s_real == NULL) s_real = REAL(pthread_mutex_lock);
    maybe_sleep(16);
    const int result = s_real(mutex);
    maybe_sleep(16);
    return result;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
    __typeof__(&pthread_cond_wait) real = (__typeof__(real))condition_function("pthread_cond_wait");
    maybe_sleep(2);
    const int result = real(condition, mutex);
    maybe_sleep(2);
    return result;
}

int pthread_cond_broadcast(pthread_cond_t* condition) {
    __typeof__(&pthread_cond_broadcast) real = (__typeof__(real))condition_function("pthread_cond_broadcast");
    maybe_sleep(2);
    return real(condition);
}

int __clone(int (*run)(void*), void* stack, int flags, void* data, ...) {
    int (*const real)(int (*)(void*), void*, int, void*, ...) = (__typeof__(real))dlsym(RTLD_NEXT, "__clone");
    maybe_sleep(2);
    return real(run, stack, flags, data);
}
