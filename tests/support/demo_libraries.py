"""Build two small lazy libraries for Python programs. `call` catches the exceptions of C++, as
extensions do; `call_four` does not."""

import os
import subprocess
import sys
from pathlib import Path

from support import REPOSITORY
from support.lazylib import LazyLibrary, build_lazy_library

NAMES = ("one", "two", "three")
BLOBS = {n: f'#include "demo.h"\nint {n}(int x) {{ return x + {i}; }}\n' for i, n in enumerate(NAMES, 1)}
HEADER = "#pragma once\nint one(int); int two(int); int three(int);\n"
# `call` returns -1 if a blob cannot be compiled or loaded.
MAIN = """
#include "demo.h"
#include <exception>
extern "C" int call(int which, int x) {
    try {
        return which == 1 ? one(x) : which == 2 ? two(x) : three(x);
    } catch (const std::exception&) {
        return -1;
    }
}
"""
FOUR = '#include "demo.h"\nint four(int x) { return x + 4; }\n'
CALL_FOUR = '#include "demo.h"\nextern "C" int call_four(int x) { return four(x); }\n'


def build_demo(where: Path, objects_dir: Path) -> LazyLibrary:
    """Build libdemo.so with the blobs `NAMES`."""
    symbols = {n: (f"_Z{len(n)}{n}i",) for n in NAMES}
    return build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=symbols)


def build_other(where: Path, objects_dir: Path) -> LazyLibrary:
    """Build libother.so with the one blob `four`."""
    header, symbols = "#pragma once\nint four(int);\n", {"four": ("_Z4fouri",)}
    return build_lazy_library(
        where, objects_dir, {"four": FOUR}, CALL_FOUR, header=header, symbols=symbols, name="other"
    )


HEAD = """
import asyncio, ctypes, gc, os, subprocess, sys, threading, time
import lazyck
path, other = os.environ["LIBRARY"], os.environ["OTHER"]
"""


class Python:
    """Runs Python text in processes that share the test's cache and know the paths of both
    libraries."""

    def __init__(self, demo: LazyLibrary, other: LazyLibrary) -> None:
        self.demo, self.other = demo, other

    def __call__(self, text: str, **env: str) -> subprocess.CompletedProcess[str]:
        places = {"LIBRARY": str(self.demo.library), "OTHER": str(self.other.library), "PYTHONPATH": str(REPOSITORY)}
        argv = [sys.executable, "-c", HEAD + text]
        done = subprocess.run(argv, env={**os.environ, **places, **env}, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done


def slow(compiler: Path, before: str) -> str:
    """Make the compiler run the shell commands `before` first. Return its previous script."""
    text = compiler.read_text()
    compiler.write_text(text.replace("exec ", f'case " $* " in *" -c "*) {before} ;; esac\nexec '))
    return text
