"""Test that no lock of lazyck's is held while the dynamic loader, the C library's name services and
locale, or the program's code may run. Threads that hold one of their locks wait for ours."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.lazylib import CXX, LazyLibrary, build_lazy_library, run, runtime_objects

HEADER = """#pragma once
extern "C" { int one(int); int two(int); }
int slow();
"""
BLOBS = {
    "one": '#include "demo.h"\nextern "C" int one(int x) { return x + 1; }\n',
    "two": '#include "demo.h"\nextern "C" int two(int x) { return x + 2; }\n',
}
SYMBOLS = {"one": ("one",), "two": ("two",)}

# The constructor of this library says, in dlopen, that it runs. A while later it calls a lazy
# function.
CALLER = r"""
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>
extern "C" int one(int);
__attribute__((constructor)) static void f() {
    close(open(std::getenv("INSIDE"), O_CREAT | O_WRONLY, 0600));
    usleep(500000);
    if (one(1) != 2) std::abort();
}
"""

# The first lazy call, a hit, ends before thread B loads the library above and holds the loader's
# lock. Thread A then records, if asked to, and makes a lazy call. With "fork", the process forks
# during A's call.
PROGRAM = r"""
#include "demo.h"
#include "lazyck.h"
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
int main(int, char** argv) {
    const std::string how = argv[1];
    if (two(1) != 3) return 1;
    std::thread b([&] { if (dlopen(argv[2], RTLD_NOW) == nullptr) std::puts(dlerror()); });
    while (access(std::getenv("INSIDE"), F_OK) != 0) usleep(1000);
    std::thread a([&] {
        if (how == "record") lazyck_record((std::string(std::getenv("INSIDE")) + ".profile").c_str());
        if (one(1) != 2) std::abort();
    });
    if (how == "fork") {
        usleep(100000);
        const pid_t child = fork();
        if (child == 0) _exit(one(1) == 2 && two(1) == 3 ? 0 : 1);
        int status = 1;
        waitpid(child, &status, 0);
        if (status != 0) std::printf("child: %d\n", status);
    }
    a.join();
    b.join();
    std::puts("done");
}
"""

# This library intercepts calls that enter the loader, or libc's name services, locale or time
# zones. Each checks whether the thread holds a mutex that it has taken within a lazy library, or a
# lock of the cache.
WATCH = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <locale.h>
#include <unistd.h>
static __thread int held, locked, busy;
static void* real_dlsym(void* handle, const char* name) {
    static void* (*find)(void*, const char*);
    for (const char** version = (const char*[]){"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5", NULL}; *version; ++version)
        if (find == NULL) find = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", *version);
    return find(handle, name);
}
static void* next(const char* name) { return real_dlsym(RTLD_NEXT, name); }
static int is_ours(const void* address);
static void check(const char* what, const void* from) {
    if (busy || !is_ours(from)) return;
    if (held > 0 || locked > 0) dprintf(2, "HELD in %s: %d mutexes, %d locks\n", what, held, locked);
    else dprintf(2, "FREE in %s\n", what);
}
static struct { const char *begin, *end; } ours;
static int look(struct dl_phdr_info* info, size_t size, void* data) {
    (void)size; (void)data;
    if (strstr(info->dlpi_name, "libdemo.so") == NULL) return 0;
    ours.begin = (const char*)info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const char* end = ours.begin + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && end > ours.end) ours.end = end;
    }
    return 1;
}
__attribute__((constructor)) static void start(void) { dl_iterate_phdr(look, NULL); }
static int is_ours(const void* address) {
    return ours.begin <= (const char*)address && (const char*)address < ours.end;
}
#define FROM __builtin_return_address(0)
#define WRAP(result, name, parameters, arguments)                  \
    result name parameters {                                       \
        static result(*real) parameters;                           \
        if (real == NULL) real = (result(*) parameters)next(#name); \
        check(#name, FROM);                                        \
        return real arguments;                                     \
    }
int pthread_mutex_lock(pthread_mutex_t* m) {
    static int (*real)(pthread_mutex_t*);
    if (real == NULL) real = (int (*)(pthread_mutex_t*))next("pthread_mutex_lock");
    const int status = real(m);
    if (is_ours(FROM)) ++held;
    return status;
}
int pthread_mutex_unlock(pthread_mutex_t* m) {
    static int (*real)(pthread_mutex_t*);
    if (real == NULL) real = (int (*)(pthread_mutex_t*))next("pthread_mutex_unlock");
    if (is_ours(FROM)) --held;
    return real(m);
}
static __thread int descriptors[64];
int flock(int fd, int operation) {
    static int (*real)(int, int);
    if (real == NULL) real = (int (*)(int, int))next("flock");
    const int status = real(fd, operation);
    if (status == 0 && (operation & LOCK_EX) && fd < 64 && !descriptors[fd]) { descriptors[fd] = 1; ++locked; }
    if (status == 0 && operation == LOCK_UN && fd < 64 && descriptors[fd]) { descriptors[fd] = 0; --locked; }
    return status;
}
int close(int fd) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int))next("close");
    if (fd >= 0 && fd < 64 && descriptors[fd]) { descriptors[fd] = 0; --locked; }
    return real(fd);
}
WRAP(void*, dlopen, (const char* a, int b), (a, b))
WRAP(int, dlclose, (void* a), (a))
WRAP(int, dladdr, (const void* a, Dl_info* b), (a, b))
WRAP(int, dladdr1, (const void* a, Dl_info* b, void** c, int d), (a, b, c, d))
WRAP(int, dlinfo, (void* a, int b, void* c), (a, b, c))
WRAP(char*, dlerror, (void), ())
WRAP(int, dl_iterate_phdr, (int (*a)(struct dl_phdr_info*, size_t, void*), void* b), (a, b))
WRAP(int, getpwuid_r, (uid_t a, struct passwd* b, char* c, size_t d, struct passwd** e), (a, b, c, d, e))
WRAP(struct tm*, localtime_r, (const time_t* a, struct tm* b), (a, b))
WRAP(struct tm*, gmtime_r, (const time_t* a, struct tm* b), (a, b))
WRAP(size_t, strftime, (char* a, size_t b, const char* c, const struct tm* d), (a, b, c, d))
WRAP(char*, strerror, (int a), (a))
WRAP(char*, strsignal, (int a), (a))
WRAP(char*, setlocale, (int a, const char* b), (a, b))
WRAP(char*, getenv, (const char* a), (a))
void* dlsym(void* handle, const char* name) {
    check("dlsym", FROM);
    return real_dlsym(handle, name);
}
"""


ONE_HIT = '#include "demo.h"\nint main() { return two(1) != 3; }\n'


def make_library(where: Path, objects_dir: Path) -> LazyLibrary:
    where.mkdir()
    main = '#include "demo.h"\nint use_both(int x) { return one(x) + two(x); }\n'
    lib = build_lazy_library(where, objects_dir, BLOBS, main, header=HEADER, symbols=SYMBOLS)
    lib.program(PROGRAM, flags=["-rdynamic"])
    (where / "caller.cpp").write_text(CALLER)
    run([CXX, "-shared", "-fPIC", where / "caller.cpp", "-o", where / "libcaller.so", lib.library])
    return lib


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    return make_library(tmp_path / "lib", objects_dir)


def slowly(lib: LazyLibrary, go: Path) -> None:
    """Make each compile say that it has begun, and take 0.7 s longer."""
    script = lib.compiler.read_text()
    lib.compiler.write_text(
        script.replace("\nexec ", f"\ncase \" $* \" in *' -c '*) touch '{go}'; sleep 0.7;; esac\nexec ")
    )


@pytest.mark.parametrize("how", ["compile", "record", "fork"])
def test_initializer_that_calls_a_blob_in_dlopen_meets_no_deadlock(lib: LazyLibrary, tmp_path: Path, how: str) -> None:
    program = lib.directory / "main"
    assert lib.call(lib.program(ONE_HIT, name="hit")).returncode == 0
    done = subprocess.run(
        [program, how, lib.directory / "libcaller.so"],
        env={**os.environ, **lib.env, "INSIDE": str(tmp_path / "inside")}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "done\n", done
    assert lib.compiles("one") == 1


def test_object_files_have_no_guard_that_is_held_while_a_value_is_made(objects_dir: Path) -> None:
    for made in runtime_objects(objects_dir, CXX, ()):
        assert "__cxa_guard" not in run(["nm", "-u", made]).stdout, made


EVERYTHING = r"""
#include "demo.h"
#include "lazyck.h"
#include <cstdio>
#include <cstdlib>
#include <string>
static void hear(const lazyck_event*, void*) {}
int main(int, char** argv) {
    const std::string where = argv[1];
    lazyck_set_listener(hear, nullptr);
    lazyck_record((where + "/profile").c_str());
    if (one(1) != 2) return 1;
    lazyck_record("");
    lazyck_set_listener(nullptr, nullptr);
    lazyck_job* const job = lazyck_job_replay((where + "/profile").c_str(), 2);
    lazyck_job_wait(job, -1, nullptr);
    lazyck_job_free(job);
    lazyck_set_cache_dir((where + "/cache2").c_str());
    if (two(1) != 3) return 2;
    lazyck_stats stats = {};
    stats.size = sizeof stats;
    lazyck_get_stats(&stats);
    lazyck_clear_failures();
    return lazyck_prefetch("*") == 2 ? 0 : 3;
}
"""


@pytest.mark.parametrize("account", ["home", "no home"])
def test_no_lock_is_held_while_the_loader_or_libc_may_take_theirs(
    lib: LazyLibrary, tmp_path: Path, account: str
) -> None:
    (tmp_path / "watch.c").write_text(WATCH)
    run(["cc", "-shared", "-fPIC", "-w", tmp_path / "watch.c", "-o", tmp_path / "watch.so"])
    program = lib.program(EVERYTHING, name="everything")
    env = {k: v for k, v in {**os.environ, **lib.env}.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    env |= {"LD_PRELOAD": str(tmp_path / "watch.so"), "LAZYCK_TRACE": str(tmp_path / "trace")}
    if account == "no home":
        # Nothing is compiled here, because the looked-up account's cache is the tester's own.
        del env["LAZYCK_CACHE_DIR"]
        env["LAZYCK_JIT"] = "off"
        env["LAZYCK_NAME"] = tmp_path.name
    done = subprocess.run([program, tmp_path], env=env, capture_output=True, text=True, timeout=60)
    seen = re.findall(r"^(HELD|FREE) in (\w+)", done.stderr, re.MULTILINE)
    assert {name for how, name in seen if how == "HELD"} == set(), done.stderr
    names = {name for _, name in seen}
    assert {"dlopen", "dlinfo", "dladdr1"} <= names if account == "home" else "getpwuid_r" in names, done
    if account == "home":
        assert done.returncode == 0, done


LISTEN = r"""
import ctypes, sys, threading, time
import lazyck
library = ctypes.CDLL(sys.argv[1])
kept = ctypes.PyDLL(sys.argv[1])  # keeps the GIL during calls, as pybind11 does
kept._Z8use_bothi.restype = ctypes.c_int
lazy = lazyck.load(sys.argv[1])
heard = []
if sys.argv[2] == "call":
    with lazy.on_event(lambda event: heard.append((event.kind, event.blob, event.has_ended))):
        job = lazy.prefetch(["one", "two"])
        time.sleep(0.3)  # the prefetch compiles, and its listener wants the GIL
        assert kept._Z8use_bothi(1) == 5
    assert ("compile", "one", True) in heard and ("load", "two", True) in heard, heard
else:
    # The program ends while a prefetch compiles, whose end its listener wants to hear of when Python is gone.
    ctypes.pythonapi.Py_AtExit(ctypes.CDLL(sys.argv[3]).rest)
    job = lazy.prefetch(["one", "two"])
    def listen():
        with lazy.on_event(lambda event: time.sleep(0.01)):  # lets another thread have the GIL
            threading.Event().wait()
    threading.Thread(target=listen, daemon=True).start()
    time.sleep(0.5)  # compiles by then, and its end is in the middle of one
print("end")
"""


@pytest.mark.parametrize("how", ["call", "exit"])
def test_listener_in_python_meets_no_deadlock(lib: LazyLibrary, tmp_path: Path, how: str) -> None:
    slowly(lib, tmp_path / "go")
    (tmp_path / "rest.c").write_text("#include <unistd.h>\nvoid rest(void) { sleep(2); }\n")
    run(["cc", "-shared", "-fPIC", tmp_path / "rest.c", "-o", tmp_path / "rest.so"])
    env = {**os.environ, **lib.env, "LAZYCK_JOBS": "2"}
    for _ in range(1 if how == "call" else 3):
        done = subprocess.run(
            [sys.executable, "-c", LISTEN, lib.library, how, tmp_path / "rest.so"],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (0, "end\n"), done


# A thread releases a mutex of the library late, so that a fork probably finds it held.
LATE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
int pthread_mutex_unlock(pthread_mutex_t* mutex) {
    static int (*real)(pthread_mutex_t*);
    if (real == NULL) real = (int (*)(pthread_mutex_t*))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    Dl_info info;
    const void* const from = __builtin_return_address(0);
    const int is_known = dladdr(from, &info) != 0 && info.dli_fname != NULL;
    if (is_known && strstr(info.dli_fname, "libdemo.so") != NULL) usleep(5000);
    return real(mutex);
}
"""

FORKS = r"""
#include "demo.h"
#include "lazyck.h"
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
int main() {
    if (two(1) != 3) return 1;
    std::atomic<bool> is_over{false};
    // A compile that cannot begin, again and again: with all the locks that it takes.
    std::thread caller([&] { while (!is_over) lazyck_prefetch("one"); });
    int failed = 0;
    for (int i = 0; i < 20; ++i) {
        usleep(7000);
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            _exit(lazyck_prefetch("one") == -1 && two(1) == 3 ? 0 : 1);
        }
        int status = 1;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    is_over = true;
    caller.join();
    std::printf("%d\n", failed);
}
"""


def test_child_of_a_fork_finds_no_lock_held_by_a_thread_that_it_has_not(lib: LazyLibrary, tmp_path: Path) -> None:
    (tmp_path / "late.c").write_text(LATE)
    run(["cc", "-shared", "-fPIC", "-w", tmp_path / "late.c", "-o", tmp_path / "late.so"])
    program = lib.program(FORKS, name="forks")
    assert lib.call(lib.program(ONE_HIT, name="hit")).returncode == 0
    env = {**os.environ, **lib.env, "LD_PRELOAD": str(tmp_path / "late.so"), "LAZYCK_LAUNCHER": "/none"}
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=200)
    assert done.stdout == "0\n", done.stdout + done.stderr[-2000:]


HANDLERS = r"""
#include "demo.h"
#include "lazyck.h"
#include <cstdlib>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static void call(int (*blob)(int), int result) { alarm(30); if (blob(1) != result) std::abort(); }
int main(int argc, char**) {
    pthread_atfork([] { call(one, 2); }, [] { call(two, 3); }, [] { call(two, 3); });
    if (argc > 1) lazyck_blob_count();
    for (int i = 0; i < 2; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            call(one, 2);
            _exit(0);
        }
        int status = 1;
        waitpid(child, &status, 0);
        if (status != 0) return 1;
    }
}
"""


@pytest.mark.parametrize("words", [[], ["called before"]])
def test_handlers_of_fork_that_were_registered_first_may_call(lib: LazyLibrary, words: list[str]) -> None:
    assert lib.call(lib.program(HANDLERS), *words).returncode == 0


SIGNALS = r"""
#include "demo.h"
#include <cstdio>
#include <cstdlib>
#include <signal.h>
#include <unistd.h>
static volatile int g_handled;
int main() {
    signal(SIGUSR1, [](int) {
        alarm(30);
        if (two(1) != 3) std::abort();
        g_handled = 1;
    });
    const int value = one(1);
    std::printf("%d %d\n", value, g_handled);
}
"""


def test_signal_that_comes_while_a_lock_is_held_waits(lib: LazyLibrary, tmp_path: Path) -> None:
    (tmp_path / "amid.c").write_text(LATE.replace("unistd", "signal").replace("usleep(5000)", "raise(SIGUSR1)"))
    run(["cc", "-shared", "-fPIC", "-w", tmp_path / "amid.c", "-o", tmp_path / "amid.so"])
    done = lib.call(lib.program(SIGNALS), env={"LD_PRELOAD": str(tmp_path / "amid.so"), "LAZYCK_LOG": "error"})
    assert done.stdout == "2 1\n", done
