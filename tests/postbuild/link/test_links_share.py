"""Test that links of one build that take the same blobs share what the first of them compiled, and
that a rebuild compiles nothing."""

import os
import subprocess
from pathlib import Path

import pytest
from support import Lazyck
from support.counting import CountingCompiler

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
COMPILER = "g++-9"  # differs from the compiler of lazyck's runtime
SCRIPT = """
for n in plain box data starts; do g++-9 -c blob/$n.cpp -o $n.o; done
ar rcs libblobs.a plain.o box.o data.o starts.o
for n in 1 2; do g++-9 -DN=$n -c main.cpp -o main$n.o; done
for n in 1 2; do g++-9 main$n.o libblobs.a -o prog$n & done
wait
"""


def build(lazyck: Lazyck, where: Path) -> CountingCompiler:
    """Build two programs from one archive. Return the compiler with its counts."""
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
    cache = tmp_path / "cache"
    for n in (1, 2):
        called = run(tmp_path / f"prog{n}", cache)
        assert called.stdout == f"{n + 1} {n + 2} {n + 3} {n + 4}\n", called.stderr
        assert called.stderr.count("compiled ") == (2 if n == 1 else 0), "programs share entries"
    assert len(list(cache.glob("v1/programs/*/*.so"))) == len(list(cache.glob("v1/*/*/*.so"))) == 2


def run(program: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LAZYCK_CACHE_DIR": str(cache), "LAZYCK_LOG": "info"}
    return subprocess.run([program], capture_output=True, text=True, env=env)


SHARED = {
    "blob/twice.cpp": "static int n;\nint twice() { return n += 2; }\n",
    "lib.cpp": 'int twice();\nextern "C" int NAME() { return twice(); }\n',
    "main.cpp": "#include <cstdio>\nint twice();\n#ifdef LIBS\n"
    'extern "C" int one();\nextern "C" int two();\n#else\n'
    "static int one() { return 0; }\nstatic int two() { return 0; }\n#endif\n"
    'int main() { std::printf("%d %d %d\\n", twice(), one(), two()); }\n',
}
SHARED_SCRIPT = """
c++ -O1 -fPIC -fvisibility=hidden -c blob/twice.cpp -o twice.o
ar rcs libblobs.a twice.o
for n in one two; do
    c++ -fPIC -DNAME=$n -c lib.cpp -o $n.o
    c++ -shared $n.o libblobs.a -o lib$n.so -Wl,-soname,lib$n.so
done
c++ main.cpp libblobs.a -o alone
c++ -DLIBS main.cpp libblobs.a -L. -lone -ltwo -Wl,-rpath,$PWD -o with_libraries
"""


def test_what_one_process_may_load_twice_is_not_shared(lazyck: Lazyck, tmp_path: Path) -> None:
    """Two libraries and a program contain one blob, each with a variable of its own that the others
    do not see."""
    for name, text in SHARED.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--", "sh", "-ec", SHARED_SCRIPT]
    done = lazyck(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("1 blob deferred, 1 lazy") == 4, done.stderr
    cache = tmp_path / "cache"
    called = run(tmp_path / "alone", cache)
    assert called.stdout == "2 0 0\n" and called.stderr.count("compiled ") == 1, called.stderr
    called = run(tmp_path / "with_libraries", cache)
    assert called.stdout == "2 2 2\n", called.stderr
    assert called.stderr.count("compiled ") == 2, "one for each library, none for the program"
    shelves = sorted(p.parents[1].name for p in cache.glob("v1/*/*/*.so"))
    assert shelves == ["libone", "libtwo", "programs"]
