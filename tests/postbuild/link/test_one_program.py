"""Test that a lazy library is one program with its blobs: state, addresses and interposition are as
they are ahead of time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import Lazyck

API = """
#pragma once
#include <initializer_list>
#include <typeinfo>
inline int everywhere = 10;
inline int among_blobs = 20;
inline int& counted() { static int n = 30; return n; }
inline int& counted_among_blobs() { static int n = 40; return n; }
template <typename T> struct Table { static int rows; };
template <typename T> int Table<T>::rows = 50;
inline thread_local int per_thread = 60;
__attribute__((visibility("default"))) inline int in_line(int x) { return x + everywhere; }
struct Shape { int area(int x); int edges; };
struct Unseen : Shape { virtual int sides() { return 3; } };
int of_first(int x);
int of_second(int x);
__attribute__((visibility("default"))) int hook(int x);
"""
FIRST = """
#include "api.hpp"
int of_first(int x) { return x * 2; }
int Shape::area(int x) { return x + edges; }
int hook(int x) { return x + 1; }
extern "C" int calls_hook(int x) { return hook(x); }
extern "C" int change_first(int by) {
    everywhere += by; among_blobs += by; counted() += by; counted_among_blobs() += by;
    Table<int>::rows += by; Table<char>::rows += by; per_thread += by;
    return 0;
}
using Function = int (*)(int);
using Member = int (Shape::*)(int);
extern "C" int knows_first(Function f, Function second, Function weak, Member m) {
    return (f == &of_first) + 10 * (second == &of_second) + 100 * (weak == &in_line) + 1000 * (m == &Shape::area);
}
extern "C" const void* unseen_in_first() { return &typeid(Unseen); }
extern "C" int throws_unseen(int) { throw Unseen(); }
"""
SECOND = """
#include "api.hpp"
int of_second(int x) { return of_first(x) + 1; }
extern "C" int read_second(int which) {
    switch (which) {
        case 0: return everywhere;
        case 1: return among_blobs;
        case 2: return counted();
        case 3: return counted_among_blobs();
        case 4: return Table<int>::rows;
        case 5: return Table<char>::rows;
        case 6: return per_thread;
    }
    return -1;
}
static int (*const table[])(int) = {of_first, of_second, in_line};
extern "C" int same_in_table(int i, int (*f)(int)) { return table[i] == f; }
extern "C" const void* unseen_in_second() { return &typeid(Unseen); }
"""
DISPATCH = """
#include <cstdio>
#include "api.hpp"
extern "C" {
int calls_hook(int); int change_first(int); int read_second(int); int same_in_table(int, int (*)(int));
int knows_first(int (*)(int), int (*)(int), int (*)(int), int (Shape::*)(int)); int throws_unseen(int);
}
static int read_here(int which) {
    switch (which) {
        case 0: return everywhere;
        case 2: return counted();
        case 4: return Table<int>::rows;
        case 6: return per_thread;
    }
    return -1;
}
extern "C" __attribute__((visibility("default"))) void run() {
    everywhere += 100; counted() += 100; Table<int>::rows += 100; per_thread += 100;
    change_first(1);
    for (int i : {0, 2, 4, 6}) std::printf("dispatch %d: %d\\n", i, read_here(i));
    for (int i = 0; i < 7; ++i) std::printf("second %d: %d\\n", i, read_second(i));
    std::printf("addresses %d\\n", knows_first(&of_first, &of_second, &in_line, &Shape::area));
    for (int i = 0; i < 3; ++i) {
        int (*const f[])(int) = {of_first, of_second, in_line};
        std::printf("table %d: %d\\n", i, same_in_table(i, f[i]));
    }
    std::printf("hook %d %d\\n", hook(1), calls_hook(1));
    try { throws_unseen(0); } catch (Shape&) { std::printf("caught\\n"); }
    std::fflush(stdout);
}
"""
HOOK = "int hook(int x) { return x + 1000; }\n"
COMPILERS = [c for c in ("g++", "clang++-19") if shutil.which(c)]
FLAGS = "-std=c++17 -fPIC -I. -O1"


@pytest.fixture(scope="module", params=[(c, f) for c in COMPILERS for f in ("", "-fvisibility=hidden")], ids=" ".join)
def builds(request: pytest.FixtureRequest, lazyck_shared: Lazyck, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build `lazy/libx.so` and `plain/libx.so` from the same sources with the same commands. Return
    their directory."""
    where, (cxx, visibility) = tmp_path_factory.mktemp("one"), request.param
    (where / "blob").mkdir()
    texts = {"api.hpp": API, "blob/first.cpp": FIRST, "blob/second.cpp": SECOND, "dispatch.cpp": DISPATCH}
    texts["hook.cpp"] = HOOK
    texts["host.cpp"] = (
        HOOK
        + '#include <dlfcn.h>\nint main() { auto l = dlopen("libx.so", RTLD_NOW);'
        + (' reinterpret_cast<void (*)()>(dlsym(l, "run"))(); }\n')
    )
    for name, text in texts.items():
        (where / name).write_text(text)
    for kind in ("plain", "lazy"):
        (where / kind).mkdir()
        lines = [f"{cxx} {FLAGS} {visibility} -c {s} -o {kind}/{Path(s).stem}.o" for s in texts if s.endswith(".cpp")]
        lines.append(f"cd {kind}")
        lines += [f"{cxx} -shared -Wl,-soname,{x} -o {x} dispatch.o first.o second.o" for x in ("libx.so", "liby.so")]
        script = "set -e\n" + "\n".join(lines) + "\n"
        (where / f"{kind}.sh").write_text(script)
    words = ["--toolchain", "host", "--tmp-dir", where / "tmp", "--", "sh", "lazy.sh"]
    done = lazyck_shared("build", "full", *words, cwd=where)
    assert (done.stdout + done.stderr).count(" 2 lazy") == 2, done.stdout + done.stderr
    subprocess.run(["sh", "plain.sh"], cwd=where, check=True)
    subprocess.run([cxx, FLAGS.split()[0], "-shared", "-fPIC", "hook.cpp", "-o", "libhook.so"], cwd=where, check=True)
    subprocess.run([cxx, "-rdynamic", "host.cpp", "-o", "host", "-ldl"], cwd=where, check=True)
    return where


def printed(where: Path, kind: str, *command: str, **env: str) -> list[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(where / kind), "LAZYCK_CACHE_DIR": str(where / "cache"), **env}
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


LOADED = (sys.executable, "-c", "import ctypes; ctypes.CDLL('libx.so').run()")


def test_state_and_addresses_are_one_in_a_library_that_is_loaded_locally(builds: Path) -> None:
    ahead = printed(builds, "plain", *LOADED)
    assert {"addresses 1111", "dispatch 0: 111", "second 1: 21"} <= set(ahead)
    assert printed(builds, "lazy", *LOADED) == ahead


def test_a_preloaded_library_interposes(builds: Path) -> None:
    ahead = printed(builds, "plain", *LOADED, LD_PRELOAD=str(builds / "libhook.so"))
    assert any(line.startswith("hook 1001 ") for line in ahead)  # clang binds the call within the file
    assert printed(builds, "lazy", *LOADED, LD_PRELOAD=str(builds / "libhook.so")) == ahead


def test_a_program_interposes(builds: Path) -> None:
    ahead = printed(builds, "plain", "./host")
    assert any(line.startswith("hook 1001 ") for line in ahead)  # clang binds the call within the file
    assert printed(builds, "lazy", "./host") == ahead


def test_two_libraries_of_equal_names_share_what_they_share_ahead_of_time(builds: Path) -> None:
    """With default visibility, the libraries share everything. With hidden visibility, they share
    only the functions that are marked as visible."""
    calls = (
        "import ctypes, sys\n"
        "for name in 'xy': ctypes.CDLL(f'lib{name}.so', ctypes.RTLD_GLOBAL)\n"
        "for name in 'xyx': ctypes.CDLL(f'lib{name}.so').run()\n"
    )
    plain, lazy = (printed(builds, kind, sys.executable, "-c", calls) for kind in ("plain", "lazy"))
    assert lazy == plain


STANDARD = """
#include <cstdlib>
#include <new>
void *operator new(std::size_t n) { BEFORE return std::malloc(n); }
void operator delete(void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }
"""
NOTES = 'extern "C" int note(int n) { static int all; return all += n; }\n'
CALLS_NEW = (
    '#include <cstdio>\nint run(int);\nint main() { int *volatile p = new int(3); std::printf("%d\\n", run(*p)); }\n'
)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("blob", "defines a function of the C or C++ library, which the runtime needs"),
        ("library", "is asked by a resolver (IFUNC), or by a function in place of the C or C++ library's"),
        ("program", "is asked by a resolver (IFUNC), or by a function in place of the C or C++ library's"),
    ],
)
def test_what_the_runtime_calls_itself_is_no_blob_and_asks_none(
    lazyck: Lazyck, tmp_path: Path, where: str, reason: str
) -> None:
    (tmp_path / "blob").mkdir()
    is_blob = where == "blob"
    before = "" if is_blob else "note(1);"
    text = ('extern "C" int note(int);\n' if before else "") + STANDARD.replace("BEFORE", before)
    (tmp_path / "blob" / "note.cpp").write_text(NOTES)
    (tmp_path / ("blob/new.cpp" if is_blob else "new.cpp")).write_text(text)
    (tmp_path / "lib.cpp").write_text('extern "C" int note(int);\nint run(int x) { return x + (note(0) > 0); }\n')
    (tmp_path / "main.cpp").write_text(CALLS_NEW)
    own, others = ("", "new.o") if where == "program" else ("new.o", "")
    (tmp_path / "build.sh").write_text(
        "set -e\nfor f in *.cpp blob/*.cpp; do c++ -fPIC -c $f -o $(basename $f .cpp).o; done\n"
        f"c++ -shared -o libx.so lib.o note.o {own}\n"
        f"c++ -o main main.o {others} -Wl,--no-as-needed ./libx.so\n"
    )
    done = lazyck("build", "full", "--toolchain", "host", "--", "sh", "build.sh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert reason in done.stderr, done.stderr
    ran = subprocess.run([tmp_path / "main"], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "3\n" if is_blob else "4\n"), ran.stderr
