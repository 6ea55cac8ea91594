"""Tests that an incremental build under lazyck does what it does without lazyck: only what a
changed file reaches is rebuilt.

Blobs 1 and 2 read `factor.h`. Blob 3 and the dispatchers do not. Blob 2 includes it by way of a
macro. Everything reads `twice.hpp`.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import Lazyck

from lazyck.interceptor.log import read_log

HEADER = "#pragma once\n#define ADDEND 0\ntemplate <int N> int twice(int x);\n"
FACTOR = "#pragma once\n#define FACTOR {}\n"
BLOB = '#include "twice.hpp"\n#include "{}"\ntemplate <> int twice<{}>(int x) {{ return x * FACTOR + ADDEND; }}\n'
DISPATCH = """#include "twice.hpp"
extern "C" int run(int n, int x) {
    switch (n) {
        case 1: return twice<1>(x);
        case 2: return twice<2>(x);
        case 3: return twice<3>(x);
        default: return -1;
    }
}
"""
NINJA = """rule cxx
  command = c++ -fPIC -Iinc -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule plain
  command = c++ -fPIC -Iinc -MMD -MF $out.d -c $in -o $out
  depfile = $out.d
rule link
  command = c++ -shared $in -o $out
build d.o: cxx dispatch.cpp
build 1.o: cxx blob/v1.cpp
build 2.o: plain blob/v2.cpp
build 3.o: cxx blob/v3.cpp
build libx.so: link d.o 1.o 2.o 3.o
"""
MAKE = """OBJS = dispatch.o blob/v1.o blob/v2.o blob/v3.o
CXXFLAGS = -fPIC -Iinc -MMD -MP
libx.so: $(OBJS)
\t$(CXX) -shared -o $@ $^
-include $(OBJS:.o=.d)
"""
CMAKE = """cmake_minimum_required(VERSION 3.16)
project(p CXX)
add_library(x SHARED dispatch.cpp blob/v1.cpp blob/v2.cpp blob/v3.cpp)
target_include_directories(x PRIVATE inc)
"""
TOOLS = {
    "make": ("Makefile", MAKE, "make", "libx.so"),
    "ninja": ("build.ninja", NINJA, "ninja", "libx.so"),
    "cmake": ("CMakeLists.txt", CMAKE, "cmake -G Ninja -S . -B out && ninja -C out", "out/libx.so"),
    "cmake-make": ("CMakeLists.txt", CMAKE, "cmake -S . -B out && make -C out", "out/libx.so"),
}


@dataclass
class Tree:
    """The project, and how to build and call it."""

    dir: Path
    lazyck: Lazyck
    command: str
    library: Path

    def write(self, name: str, text: str) -> None:
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        # Build tools compare times, and those of some file systems are coarse.
        later = path.stat().st_mtime_ns + 20_000_000
        os.utime(path, ns=(later, later))

    def build(self) -> tuple[set[str], set[str], int]:
        """Build. Return the sources that were deferred, those that were compiled, and the number of
        lazy links."""
        words = ["build", "full", "--toolchain", "host", "--tmp-dir", self.dir / "tmp", "--", "sh", "-c", self.command]
        done = self.lazyck(*words, cwd=self.dir)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = read_log(self.dir / "tmp" / "intercept.log")
        names = {
            action: {Path(line.source).name for line in lines if line.action == action and line.reason in reasons}
            for action, reasons in (("defer", ("blob",)), ("pass", ("not-a-blob",)))
        }
        links = sum(line.action == "link" for line in lines)
        return names["defer"], {n for n in names["pass"] if n == "dispatch.cpp"}, links

    def call(self) -> tuple[list[int], list[str]]:
        """Return the results of the three functions for 10, and the blobs that were compiled for
        them."""
        code = "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); print(*(lib.run(n, 10) for n in (1, 2, 3)))"
        done = subprocess.run([sys.executable, "-c", code, str(self.library)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        compiled = [n for n in ("v1", "v2", "v3") if f"compiling {n}" in done.stderr]
        return [int(word) for word in done.stdout.split()], compiled


@pytest.fixture(params=[pytest.param(t, marks=pytest.mark.slow) if t == "cmake-make" else t for t in TOOLS])
def tree(request: pytest.FixtureRequest, tmp_path: Path, lazyck: Lazyck) -> Tree:
    file, text, command, library = TOOLS[request.param]
    if not shutil.which(command.split()[0]):
        pytest.skip(f"needs {command.split()[0]}")
    made = Tree(tmp_path, lazyck, command, tmp_path / library)
    made.write(file, text)
    made.write("inc/twice.hpp", HEADER)
    made.write("inc/factor.h", FACTOR.format(2))
    made.write("inc/other.h", FACTOR.format(7))
    made.write("dispatch.cpp", DISPATCH)
    for n in (1, 2, 3):
        text = BLOB.format("other.h" if n == 3 else "factor.h", n)
        if n == 2:
            text = text.replace('#include "factor.h"', '#define WAY "factor.h"\n#include WAY')
        made.write(f"blob/v{n}.cpp", text)
    return made


def test_what_a_change_reaches_is_made_anew_and_no_more(tree: Tree) -> None:
    every = {"v1.cpp", "v2.cpp", "v3.cpp"}
    assert tree.build() == (every, {"dispatch.cpp"}, 1)
    assert tree.call() == ([20, 20, 70], ["v1", "v2", "v3"])
    assert tree.build() == (set(), set(), 0)
    assert tree.call() == ([20, 20, 70], [])

    tree.write("inc/factor.h", FACTOR.format(3))  # only blobs read this header
    assert tree.build() == ({"v1.cpp", "v2.cpp"}, set(), 1)
    assert tree.call() == ([30, 30, 70], ["v1", "v2"])

    tree.write("blob/v3.cpp", BLOB.format("other.h", 3).replace("x * FACTOR", "x * FACTOR + 1"))
    assert tree.build() == ({"v3.cpp"}, set(), 1)
    assert tree.call() == ([30, 30, 71], ["v3"])

    tree.write("dispatch.cpp", DISPATCH.replace("twice<1>(x)", "twice<1>(x + 10)"))
    assert tree.build() == (set(), {"dispatch.cpp"}, 1)
    assert tree.call() == ([60, 30, 71], [])

    tree.write("inc/twice.hpp", HEADER.replace("ADDEND 0", "ADDEND 5"))  # all sources read this header
    assert tree.build() == (every, {"dispatch.cpp"}, 1)
    assert tree.call() == ([65, 35, 76], ["v1", "v2", "v3"])
