"""Sources of a library with four blobs, a program that calls any of them, and what tests of many
processes need."""

import functools
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support import Machine
from support.lazylib import LazyLibrary, build_lazy_library

HEADER = "#pragma once\nint one(int); int two(int); int three(int); int four(int); int call(int which, int x);\n"


NAMES = ("one", "two", "three", "four")


BLOBS = {n: f'#include "demo.h"\nint {n}(int x) {{ return x + {i}; }}\n' for i, n in enumerate(NAMES, 1)}


MAIN = '#include "demo.h"\nint call(int which, int x) {\n' + "".join(
    f"if (which == {i}) return {n}(x);\n" for i, n in enumerate(NAMES, 1)
) + "return 0; }\n"  # fmt: skip


SYMBOLS = {n: (f"_Z{len(n)}{n}i",) for n in NAMES}


# This program calls the blobs whose numbers are its arguments, in that order. It exits with 3 after
# a CompileError.
CALLER = r"""
#include "demo.h"
#include "error.hpp"
#include <cstdio>
#include <cstdlib>
int main(int argc, char** argv) {
    int wrong = 0;
    for (int i = 1; i < argc; ++i) {
        const int which = std::atoi(argv[i]);
        try { wrong |= call(which, 10) != 10 + which; }
        catch (const lazyck::CompileError& e) { std::puts(e.what()); wrong = 3; }
    }
    return wrong;
}
"""


def four_blob_libraries(factory: pytest.TempPathFactory, objects_dir: Path) -> Callable[[Machine], LazyLibrary]:
    """Return a function that builds a library with the four blobs and its program "main", once for
    each machine."""

    @functools.cache
    def build(machine: Machine) -> LazyLibrary:
        where = factory.mktemp("four")
        made = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS, machine=machine)
        made.program(CALLER)
        return made

    return build


def slow_compiler(lib: LazyLibrary, before: str) -> None:
    """Make the compile step (not the link step) run the shell commands `before` first."""
    text = lib.compiler.read_text()
    lib.compiler.write_text(text.replace("exec ", f'case " $* " in *" -c "*) {before} ;; esac\nexec '))


def start(
    lib: LazyLibrary, *words: int | str, env: Mapping[str, str] | None = None, name: str = "main"
) -> subprocess.Popen[str]:
    """Start a process of a program with these arguments (of "main": the blobs that it calls), in a
    process group of its own. Ctrl-C ends it even if a shell started these tests in the
    background."""
    argv = lib.words(lib.directory / name, *map(str, words))
    full = {**os.environ, **lib.env, **(env or {})}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        argv,
        env=full,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def all_want_all(lib: LazyLibrary) -> None:
    """Let threads of several processes call all blobs at once. Each blob must be compiled once."""
    lib.program(
        r"""
    #include "demo.h"
    #include "lazyck.h"
    #include <atomic>
    #include <thread>
    #include <vector>
    int main() {
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < 8; ++t) threads.emplace_back([&, t] {
            for (int i = 0; i < 4; ++i) {
                const int which = 1 + (t + i) % 4;
                if (call(which, 10) != 10 + which) ++wrong;
                if (t == 0) lazyck_clear_failures();
                lazyck_stats stats = {};
                stats.size = sizeof stats;
                if (lazyck_get_stats(&stats) != 0) ++wrong;
            }
        });
        if (lazyck_prefetch("*") != 4) ++wrong;
        for (auto& thread : threads) thread.join();
        return wrong;
    }
    """,
        "threads",
    )
    running = [start(lib, name="threads") for _ in range(8)]
    said = [p.communicate(timeout=300)[1] for p in running]
    assert [p.returncode for p in running] == [0] * 8, said
    assert [lib.compiles(n) for n in NAMES] == [1, 1, 1, 1]
