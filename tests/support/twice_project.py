"""A project with blobs and a dispatcher, for tests of links and of later builds."""

import subprocess
import sys
from pathlib import Path

HEADER = """
#pragma once
template <int N> int twice(int x);
"""


BLOB = '#include "twice.hpp"\ntemplate <> int twice<{n}>(int x) {{ return x * 2 + {n}; }}\n'


DISPATCH = '#include "twice.hpp"\nextern "C" int run(int n, int x) {{ {cases} return -1; }}\n'


def write_project(where: Path, numbers: list[int], main: str = "") -> None:
    """Write `blob/v<N>.cpp` for each number, and a dispatcher that calls them."""
    (where / "blob").mkdir(parents=True)
    (where / "twice.hpp").write_text(HEADER)
    for n in numbers:
        (where / "blob" / f"v{n}.cpp").write_text(BLOB.format(n=n))
    cases = " ".join(f"if (n == {n}) return twice<{n}>(x);" for n in numbers)
    (where / "dispatch.cpp").write_text(DISPATCH.format(cases=cases) + main)


def run_library(library: Path, n: int, x: int) -> subprocess.CompletedProcess[str]:
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).run(int(sys.argv[2]), int(sys.argv[3])))"
    return subprocess.run([sys.executable, "-c", code, str(library), str(n), str(x)], capture_output=True, text=True)


COMPILE = "for f in dispatch blob/v*; do f=${f%.cpp}; c++ -fPIC -I. -c $f.cpp -o $(basename $f).o; done\n"
