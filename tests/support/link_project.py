"""Build a tiny library, whose parts the tests choose, under `lazyck build full` with a shell
script."""

import os
import subprocess
import sys
from pathlib import Path

from support import Lazyck

HEADER = """
#pragma once
template <int N> int twice(int x);
int helper(int x);
int other_helper(int x);
inline int checked(int x) { if (x < 0) { return helper(x); } return x; }
struct Keeper { Keeper(); int value; };
extern int level;
"""
DISPATCH = """
#include "api.hpp"
extern "C" __attribute__((visibility("default"))) int run(int n, int x) {{ {cases} return -1; }}
"""
FLAGS = "-fPIC -I. -O1"


class Project:
    """Builds a tiny library: `blob/v<N>.cpp` define `twice<N>` with the given bodies, and
    `dispatch.cpp` calls them all."""

    def __init__(self, lazyck: Lazyck, where: Path) -> None:
        self.lazyck, self.where = lazyck, where
        self.report = ""

    def write(self, bodies: dict[int, str], calls: list[int] | None = None, more: str = "") -> "Project":
        (self.where / "blob").mkdir(parents=True, exist_ok=True)
        self.file("api.hpp", HEADER)
        for n, text in bodies.items():
            self.file(f"blob/v{n}.cpp", '#include "api.hpp"\n' + text)
        cases = " ".join(f"if (n == {n}) return twice<{n}>(x);" for n in (calls if calls is not None else bodies))
        self.file("dispatch.cpp", DISPATCH.format(cases=cases) + more)
        return self

    def file(self, name: str, text: str) -> None:
        (self.where / name).write_text(text)

    def build(self, link: str, flags: str = FLAGS, cxx: str = "c++", path: str = "") -> "Project":
        script = f"set -e\nfor f in *.cpp blob/*.cpp; do {cxx} {flags} -c $f -o $(basename $f .cpp).o; done\n{link}\n"
        self.file("build.sh", script)
        words = ["build", "full", "--toolchain", "host", "--tmp-dir", self.where / "tmp", "--", "sh", "build.sh"]
        done = self.lazyck(*words, cwd=self.where, env={"PATH": f"{path}:{os.environ['PATH']}"} if path else None)
        assert done.returncode == 0, done.stdout + done.stderr
        self.report = done.stdout + done.stderr
        return self

    def call(self, n: int, x: int, library: str = "libx.so") -> str:
        return self.calls((n, x), library=library)[0]

    def calls(self, *arguments: tuple[int, int], library: str = "libx.so") -> list[str]:
        """Return what `run` does with each of `arguments`, all in one process."""
        code = f"import ctypes; run = ctypes.CDLL('./{library}').run; print([run(*a) for a in {list(arguments)}])"
        done = subprocess.run([sys.executable, "-c", code], cwd=self.where, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip("[]\n").split(", ")

    def eager(self) -> list[str]:
        """Return the summary's reasons for eager sources."""
        return [line.partition("  eager: ")[2] for line in self.report.splitlines() if "  eager: " in line]


def body(n: int, expression: str) -> str:
    return f"template <> int twice<{n}>(int x) {{ return {expression}; }}\n"


SHARED = "c++ -shared -o libx.so *.o"
