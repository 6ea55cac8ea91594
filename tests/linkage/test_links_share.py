"""Links of one build that take the same blobs share what the first of them compiled; a rebuild compiles nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from counting import CountingCompiler
from support import Lazyck

BLOBS = {
    "plain": "int plain(int x) { return x + 1; }\n",
    "box": "template <typename T> struct Box { T get(T x); };\n"
    "template <typename T> T Box<T>::get(T x) { return x + 2; }\ntemplate struct Box<int>;\n",
    "data": "int table[2] = {3, 4};\nint data(int x) { return x + table[0]; }\n",
    "starts": "#include <string>\nstatic std::string name(3, 'x');\n"
    "int starts(int x) { return x + int(name.size()) + 1; }\n",
}
PROGRAM = """
#include <cstdio>
int plain(int); int data(int); int starts(int);
template <typename T> struct Box { T get(T x); };
extern template struct Box<int>;
int main() { std::printf("%d %d %d %d\\n", plain(N), Box<int>().get(N), data(N), starts(N)); }
"""
COMPILER = "g++-9"  # not the one that lazyck's runtime is compiled with
SCRIPT = """
for n in plain box data starts; do g++-9 -c blob/$n.cpp -o $n.o; done
ar rcs libblobs.a plain.o box.o data.o starts.o
for n in 1 2; do g++-9 -DN=$n -c main.cpp -o main$n.o; done
for n in 1 2; do g++-9 main$n.o libblobs.a -o prog$n & done
wait
"""


def build(lazyck: Lazyck, where: Path) -> CountingCompiler:
    """Build two programs from one archive; the compiler, which has counted."""
    compiler = CountingCompiler(where, COMPILER)
    (where / "blob").mkdir(exist_ok=True)
    for name, text in BLOBS.items():
        (where / "blob" / f"{name}.cpp").write_text(text)
    (where / "main.cpp").write_text(PROGRAM)
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", where / "tmp", "--", "sh", "-ec", SCRIPT]
    done = lazyck(*words, cwd=where, env={"PATH": f"{compiler.path.parent}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("4 blobs deferred, 2 lazy") == 2, done.stderr
    return compiler


@pytest.mark.differs("counts compiles, and the comparison has some of its own")
def test_programs_of_one_archive_and_a_rebuild(lazyck: Lazyck, tmp_path: Path) -> None:
    first = build(lazyck, tmp_path)
    assert [first.compiles(name) for name in ("box", "data", "starts", "probe")] == [1, 1, 1, 1]
    again = build(lazyck, tmp_path)
    assert [again.compiles(name) for name in ("box", "data", "starts", "probe")] == [0, 0, 0, 0]
    for n in (1, 2):
        env = {**os.environ, "LAZYCK_CACHE_DIR": str(tmp_path / "cache")}
        called = subprocess.run([tmp_path / f"prog{n}"], capture_output=True, text=True, env=env)
        assert called.stdout == f"{n + 1} {n + 2} {n + 3} {n + 4}\n", called.stderr
