/* Makes system calls fail on demand (by LD_PRELOAD) in the program that FAULT_PROGRAM names:
 *     FAULT_BELOW   calls on paths below this directory are counted, and calls without a path
 *     FAULT_FIRST   the number of the first call that fails, from 1
 *     FAULT_LAST    the number of the last call that fails (default: FAULT_FIRST)
 *     FAULT_ERRNO   the errno value of failed calls (default: EIO); -1: the process is killed
 *                   instead; 0: no call fails, and all are logged
 *     FAULT_LINK    DIRECTORY=TARGET: no call fails, but before the first one DIRECTORY is moved
 *                   aside, and a link to TARGET takes its place
 *     FAULT_OPS     the calls to count, such as "write,rename" (default: k_default_ops, the calls
 *                   that fail without room on the disk)
 *     FAULT_LOG     a file that gets a line for each call that fails
 *     FAULT_FLOCK   the errno value of every flock; 0: flock succeeds and locks nothing
 *     FAULT_FSTYPE  the type that fstatfs reports for every file system
 *     FAULT_CLOCK   seconds by which the wall clock is wrong, forward and back by turns
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static const char k_default_ops[] = "mkdir,open,write,fsync,ftruncate,rename";
static atomic_long g_count;
static atomic_long g_clock_reads;
/* getpid() would not do: a process that shares this memory starts a compiler. */
static pid_t g_process;

__attribute__((constructor)) static void remember_process(void) { g_process = getpid(); }

static long number(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text == NULL || *text == 0 ? otherwise : atol(text);
}

static int is_meant(void) {
    const char* program = getenv("FAULT_PROGRAM");
    return program != NULL && strcmp(program, program_invocation_short_name) == 0;
}

static int is_chosen(const char* op) {
    const char* ops = getenv("FAULT_OPS");
    if (ops == NULL || *ops == 0) ops = k_default_ops;
    const size_t size = strlen(op);
    for (const char* at = strstr(ops, op); at != NULL; at = strstr(at + 1, op)) {
        if ((at == ops || at[-1] == ',') && (at[size] == 0 || at[size] == ',')) return 1;
    }
    return 0;
}

/* Exchanges a directory for a link, as another process could do at this moment. */
static void put_link(const char* words) {
    char directory[4096], aside[4200];
    const char* target = strchr(words, '=');
    snprintf(directory, sizeof directory, "%.*s", (int)(target - words), words);
    snprintf(aside, sizeof aside, "%s.aside", directory);
    if (syscall(SYS_renameat2, AT_FDCWD, directory, AT_FDCWD, aside, 0) == 0)
        syscall(SYS_symlinkat, target + 1, AT_FDCWD, directory);
}

/* Returns whether this call is to fail, and sets errno if so. */
static int fails(const char* op, const char* path) {
    const char* below = getenv("FAULT_BELOW");
    if (below == NULL || !is_meant() || !is_chosen(op)) return 0;
    if (path != NULL && strncmp(path, below, strlen(below)) != 0) return 0;
    const long first = number("FAULT_FIRST", 0);
    const long call = atomic_fetch_add(&g_count, 1) + 1;
    if (call < first || call > number("FAULT_LAST", first)) return 0;
    const char* log = getenv("FAULT_LOG");
    if (log != NULL) {
        char line[4400];
        const int size = snprintf(line, sizeof line, "%ld %s %s\n", call, op, path == NULL ? "" : path);
        const long fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        syscall(SYS_write, fd, line, (size_t)size);
        syscall(SYS_close, fd);
    }
    if (getenv("FAULT_LINK") != NULL) {
        put_link(getenv("FAULT_LINK"));
        return 0;
    }
    const long error = number("FAULT_ERRNO", EIO);
    if (error < 0) {
        kill(g_process, SIGKILL);
        pause();
    }
    errno = (int)error;
    return error != 0;
}

/* Reads the path of a descriptor. Returns 0 if it has none. */
static int path_of(int fd, char* path, size_t size) {
    char name[64];
    snprintf(name, sizeof name, "/proc/thread-self/fd/%d", fd);
    const ssize_t length = readlink(name, path, size - 1);
    if (length <= 0 || path[0] != '/') return 0;
    path[length] = 0;
    return 1;
}

static int fails_on(const char* op, int fd) {
    char path[4096];
    return path_of(fd, path, sizeof path) && fails(op, path);
}

/* Returns whether a call that takes a directory and a name in it is to fail. */
static int fails_at(const char* op, int directory, const char* name) {
    char path[4096], whole[8200];
    if (name[0] == '/' || directory == AT_FDCWD) return fails(op, name);
    if (!path_of(directory, path, sizeof path)) return 0;
    snprintf(whole, sizeof whole, "%s/%s", path, name);
    return fails(op, whole);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int open_with(int directory, const char* path, int flags, mode_t mode) {
    const char* op = (flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR)) != 0 ? "open" : "read";
    if (fails_at(op, directory, path)) return -1;
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

static mode_t mode_in(int flags, va_list more) { return (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0; }

int open(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = mode_in(flags, more);
    va_end(more);
    return open_with(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = mode_in(flags, more);
    va_end(more);
    return open_with(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = mode_in(flags, more);
    va_end(more);
    return open_with(directory, path, flags, mode);
}

int openat64(int directory, const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = mode_in(flags, more);
    va_end(more);
    return open_with(directory, path, flags, mode);
}

ssize_t write(int fd, const void* data, size_t size) {
    return fails_on("write", fd) ? -1 : REAL(write)(fd, data, size);
}

int fsync(int fd) { return fails_on("fsync", fd) ? -1 : REAL(fsync)(fd); }

int ftruncate(int fd, off_t size) { return fails_on("ftruncate", fd) ? -1 : REAL(ftruncate)(fd, size); }

int rename(const char* from, const char* to) { return fails("rename", to) ? -1 : REAL(rename)(from, to); }

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
    if (fails_at("rename", to_directory, to)) return -1;
    return REAL(renameat)(from_directory, from, to_directory, to);
}

int unlinkat(int directory, const char* name, int flags) {
    return fails_at("unlink", directory, name) ? -1 : REAL(unlinkat)(directory, name, flags);
}

int fchmod(int fd, mode_t mode) { return fails_on("chmod", fd) ? -1 : REAL(fchmod)(fd, mode); }

int mkdir(const char* path, mode_t mode) { return fails("mkdir", path) ? -1 : REAL(mkdir)(path, mode); }

int mkdirat(int directory, const char* name, mode_t mode) {
    return fails_at("mkdir", directory, name) ? -1 : REAL(mkdirat)(directory, name, mode);
}

char* mkdtemp(char* path) { return fails("mkdir", path) ? NULL : REAL(mkdtemp)(path); }

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (fd >= 0 && fails_on("read", fd)) return MAP_FAILED;
    return REAL(mmap)(at, size, protection, flags, fd, offset);
}

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* how,
                char* const argv[], char* const environment[]) {
    if (fails("spawn", NULL)) return errno;
    return REAL(posix_spawn)(pid, path, actions, how, argv, environment);
}

/* The runtime starts processes with this call, which is below posix_spawn. */
int __clone(int (*run)(void*), void* stack, int flags, void* data, ...) {
    if (fails("spawn", NULL)) return -1;
    int (*const real)(int (*)(void*), void*, int, void*, ...) = (__typeof__(real))dlsym(RTLD_NEXT, "__clone");
    return real(run, stack, flags, data);
}

void* dlopen(const char* path, int flags) {
    if (fails("dlopen", NULL)) return NULL;
    return REAL(dlopen)(path, flags);
}

int flock(int fd, int operation) {
    if (fails_on("flock", fd)) return -1;
    const long error = number("FAULT_FLOCK", -1);
    if (error < 0 || !is_meant()) return REAL(flock)(fd, operation);
    errno = (int)error;
    return error == 0 ? 0 : -1;
}

int fstatfs(int fd, struct statfs* out) {
    const int result = REAL(fstatfs)(fd, out);
    const long kind = number("FAULT_FSTYPE", 0);
    if (result == 0 && kind != 0 && is_meant()) out->f_type = kind;
    return result;
}

static time_t jump(void) {
    const long seconds = is_meant() ? number("FAULT_CLOCK", 0) : 0;
    return atomic_fetch_add(&g_clock_reads, 1) % 2 == 0 ? seconds : -seconds;
}

int clock_gettime(clockid_t clock, struct timespec* out) {
    const int result = (int)syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && clock == CLOCK_REALTIME) out->tv_sec += jump();
    return result;
}

time_t time(time_t* out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}
