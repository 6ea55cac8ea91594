"""Test that a program sees the same of a lazy library as of one that was built ahead of time,
however it loads it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support import Lazyck

HEADER = """#pragma once
#include <cstdio>
struct End { const char* name; ~End() { std::puts(name); } };
inline int& shared() { static int n; return n; }  // version 1: a unique symbol
extern "C" { int helper(int); int k(int); int k2(int); int k3(int); int plugged(int); int bump(); int hook(int);
             void ends(void); int thread_end(int); int late(int); }
"""
BLOBS = {
    "k": """inline __attribute__((noinline)) int vague(int x) { return x + 7; }
        extern "C" int k(int x) { return helper(x) * 10 + vague(0) * 100000 + bump(); }""",
    "k2": 'extern "C" int k2(int x) { return shared() += x; }',
    "k3": 'extern "C" int k3(int x) { return shared() += 100 * x; }',
    "plugged": """#include <dlfcn.h>
        extern "C" int plugged(int x) {
            void* h = dlopen("libplug.so", RTLD_NOW);
            return h ? ((int (*)(int))dlsym(h, "plug"))(x) : -1;
        }""",
    "ends": """#include <cstdlib>
        void ends() {
            static End s{"static of a blob"};
            std::atexit([] { std::puts("at exit, of a blob"); });
        }
        int thread_end(int x) { static thread_local End t{"of a thread, of a blob"}; return t.name[0] + x; }""",
    "hooked": 'extern "C" int hooked(int x) { return hook(x); }',
    "late": 'extern "C" int late(int x) { return x * 10 + VERSION; }',
}
MAIN = """#include "inc.h"
extern "C" int hooked(int);
static int n;
struct Static { ~Static() { std::puts("destructor"); std::fflush(stdout); } } s;
static int constructed;
__attribute__((constructor)) static void begin() { std::printf("constructor %d\\n", ++constructed); }
__attribute__((destructor)) static void end() { std::printf("end %d\\n", late(constructed)); std::fflush(stdout); }
extern "C" {
int bump() { return ++n; }
int helper(int x) { return x + VERSION; }
__attribute__((weak)) int hook(int) { return -5; }
int call(int x) { static End first{"first of the library"}; ends(); static End last{"last of it"}; return k(x); }
int of_thread(int x) { return thread_end(x); }
int state(int x) { int a = k2(x), b = k3(x); return a * 10000 + b; }
int plug_in(int x) { return plugged(x); }
int call_hook(int x) { return hooked(x); }
}
"""
SCRIPT = (
    "for s in main.cpp blob/*.cpp; do c++ -O1 -fPIC -I. -DVERSION={} {} -c $s -o $(basename $s .cpp).o; done; "
    "c++ -shared -Wl,-soname,libk.so -o libk.so *.o -ldl -Wl,-rpath,'$ORIGIN/plug'"
)
# The first word is the way of loading, the others are libraries.
PROGRAM = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int helper(int x) { return x + 1000; }  // a rival of the library's, and of a blob's
int _Z5vaguei(int x) { return 3; }
static void* opened(void* h) { if (!h) { puts(dlerror()); exit(3); } return h; }
static int f(void* h, const char* name, int x) { return ((int (*)(int))opened(dlsym(h, name)))(x); }
int main(int c, char** v) {
    const char *a = v[2], *b = v[3];
    void *h = 0, *g = 0;
    setvbuf(stdout, 0, _IONBF, 0);
    if (!strcmp(v[1], "local")) h = opened(dlopen(a, RTLD_NOW));
    if (!strcmp(v[1], "global")) h = opened(dlopen(a, RTLD_LAZY | RTLD_GLOBAL));
    if (!strcmp(v[1], "deep")) h = opened(dlopen(a, RTLD_NOW | RTLD_DEEPBIND));
    if (!strcmp(v[1], "deep and global")) h = opened(dlopen(a, RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND));
    if (!strcmp(v[1], "namespace")) h = opened(dlmopen(LM_ID_NEWLM, a, RTLD_NOW));
    if (!strcmp(v[1], "two")) h = opened(dlopen(a, RTLD_NOW)), g = opened(dlopen(b, RTLD_NOW));
    if (!strcmp(v[1], "deep, and another")) h = opened(dlopen(a, RTLD_DEEPBIND | 2)), g = opened(dlopen(b, RTLD_NOW));
    if (!strncmp(v[1], "closed", 6))
        for (int i = 0; i < 2; ++i) {
            const char* path = strstr(v[1], "unique") ? a : b;
            h = opened(dlopen(path, RTLD_NOW));
            if (!strstr(v[1], "first")) f(h, "late", 0);
            if (strstr(v[1], "thread")) printf("%d\\n", f(h, "of_thread", 1));
            printf("%d %d\\n", f(h, "call", 3), f(h, "state", 1));
            dlclose(h);
            puts(dlopen(path, RTLD_NOW | RTLD_NOLOAD) ? "stays" : "gone");
        }
    else if (!strcmp(v[1], "plug-in's directory")) printf("%d\\n", f(opened(dlopen(a, RTLD_NOW)), "plug_in", 3));
    else if (!strcmp(v[1], "needed by a plug-in")) printf("%d\\n", f(opened(dlopen(v[4], RTLD_NOW)), "call_hook", 3));
    else {
        for (int i = 0; i < 2; ++i) {
            printf("%d %d\\n", f(h, "call", 3), f(h, "state", 1));
            if (g) printf("%d %d\\n", f(g, "call", 3), f(g, "state", 1));
        }
    }
}
"""
WAYS = [
    "local", "global", "deep", "deep and global", "namespace", "two", "deep, and another", "closed",
    "closed, with a unique symbol", "closed, with an object of a thread", "plug-in's directory", "needed by a plug-in",
]  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> Path:
    """Return a directory with the program and, in `ahead1`, `ahead2`, `lazy1`, `lazy2` and copies
    of the first ones, libraries of one soname, each with a plug-in and a library that needs it."""
    at = tmp_path_factory.mktemp("ways")

    def cc(*words: str, text: str) -> None:
        subprocess.run(["cc", "-w", "-x", "c", "-", *words], cwd=at, input=text, text=True, check=True)

    for kind in ("ahead", "lazy"):
        for version in (1, 2):
            where = at / f"{kind}{version}"
            (where / "blob").mkdir(parents=True)
            (where / "plug").mkdir()
            (where / "inc.h").write_text(HEADER)
            (where / "main.cpp").write_text(MAIN)
            for name, text in BLOBS.items():
                (where / "blob" / f"{name}.cpp").write_text(f'#include "inc.h"\n{text}\n')
            script = ("sh", "-c", SCRIPT.format(version, "" if version == 1 else "-fno-gnu-unique"))
            if kind == "ahead":
                subprocess.run(script, cwd=where, check=True)
            else:
                words = ("--tmp-dir", at / f"tmp{version}", "--toolchain", "host")
                done = lazyck_shared("build", "full", *words, "--", *script, cwd=where)
                assert done.returncode == 0, done.stderr
                assert "7 lazy" in done.stderr, done.stderr
            cc("-shared", "-fPIC", "-o", str(where / "plug" / "libplug.so"), text="int plug(int x) { return 77; }\n")
            words_ = (f"-L{where}", "-Wl,--no-as-needed", "-l:libk.so", "-Wl,-rpath,$ORIGIN")
            cc("-shared", "-fPIC", "-o", str(where / "libneeds.so"), *words_, text="int hook(int x) { return 42; }\n")
        (at / f"{kind}1copy").mkdir()
        (at / f"{kind}1copy" / "libk.so").write_bytes((at / f"{kind}1" / "libk.so").read_bytes())
    cc("-rdynamic", "-o", "p", "-ldl", text=PROGRAM)
    return at


@pytest.mark.parametrize(
    ("way", "other"), [*((way, "2") for way in WAYS), ("two", "1copy"), ("deep, and another", "1copy")]
)
def test_program_sees_the_same(built: Path, way: str, other: str) -> None:
    cold, cached, ahead = (seen(built, kind, way, other) for kind in ("lazy", "lazy", "ahead"))
    assert cold == cached == ahead
    assert ahead[0] == 0


def test_a_library_that_is_being_closed_loads_nothing(built: Path) -> None:
    """A blob needs its library, and the loader would keep it beyond that."""
    status, said = seen(built, "lazy", "closed, a first call", "2")
    assert status == -signal.SIGABRT
    assert "cannot load blob 'late': its first call is in a destructor of its library" in said


def seen(built: Path, kind: str, way: str, other: str) -> tuple[int, str]:
    libraries = [f"{kind}{n}/libk.so" for n in ("1", other)]
    words = [str(built / "p"), way, *libraries, f"{kind}1/libneeds.so"]
    env = {**os.environ, "LAZYCK_CACHE_DIR": str(built / "cache"), "LAZYCK_LOG": "error"}
    done = subprocess.run(words, cwd=built, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr
