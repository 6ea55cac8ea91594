"""Test a source that is compiled in several ways for one link: each object is a blob of its own,
but copies of an object are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import Lazyck
from support.link_project import FLAGS, SHARED, Project, body

from lazyck.formats.manifest import decode

KERNEL = """
#define JOIN(a, b) a##b
#define NAMED(name, bits) JOIN(name, bits)
extern "C" int NAMED(convert, BITS)(int x) { return x * BITS; }
"""
WAYS = (8, 16, 32)


def build(lazyck: Lazyck, where: Path, script: str) -> str:
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", where / "tmp", "--", "sh", "-ec", script]
    done = lazyck(*words, cwd=where)
    assert done.returncode == 0, done.stderr
    return done.stderr


def call(library: Path, *functions: str, env: dict[str, str] | None = None) -> list[int]:
    code = "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); print(*[getattr(lib, f)(10) for f in sys.argv[2:]])"
    words = [sys.executable, "-c", code, str(library), *functions]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stderr
    return [int(n) for n in done.stdout.split()]


def in_three_widths(lazyck: Lazyck, where: Path) -> list[str]:
    (where / "blob").mkdir(parents=True)
    (where / "blob" / "convert.cpp").write_text(KERNEL)
    compiles = "".join(f"c++ -fPIC -DBITS={n} -c blob/convert.cpp -o c{n}.o\n" for n in WAYS)
    said = build(lazyck, where, f"{compiles}c++ -shared -o libx.so c8.o c16.o c32.o")
    assert "3 blobs deferred, 3 lazy with 3 symbols, 0 eager" in said
    return [blob.name for blob in decode(next(where.glob("tmp/libs/*/manifest")).read_bytes(), "").blobs]


def test_each_object_of_a_source_that_is_compiled_in_several_ways_is_a_blob(lazyck: Lazyck, tmp_path: Path) -> None:
    names = in_three_widths(lazyck, tmp_path)
    assert call(tmp_path / "libx.so", *(f"convert{n}" for n in WAYS)) == [80, 160, 320]
    assert len(set(names)) == 3
    assert all(name.startswith("convert-") for name in names)
    cached = lazyck("prebuild", "list", "--manifest", tmp_path / "libx.so", names[1]).stdout
    assert [line.partition("\t")[0] for line in cached.splitlines()] == [names[1]]


def test_the_names_of_such_blobs_do_not_depend_on_where_the_project_lies(lazyck: Lazyck, tmp_path: Path) -> None:
    first = in_three_widths(lazyck, tmp_path / "first")
    assert in_three_widths(lazyck, tmp_path / "elsewhere" / "second") == first


def test_an_eager_one_among_them_has_an_object_of_its_own(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "convert.cpp").write_text(KERNEL + "#if BITS > 8\nint NAMED(table, BITS)[4];\n#endif\n")
    compiles = "".join(f"c++ -fPIC -DBITS={n} -c blob/convert.cpp -o c{n}.o\n" for n in WAYS)
    said = build(lazyck, tmp_path, f"{compiles}c++ -shared -o libx.so c8.o c16.o c32.o")
    assert "1 lazy with 1 symbol, 2 eager" in said
    assert call(tmp_path / "libx.so", *(f"convert{n}" for n in WAYS)) == [80, 160, 320]


@pytest.mark.parametrize(("more", "lazy"), [("", 1), ("int table_of_one[4] = {1};\n", 0)], ids=["lazy", "eager"])
def test_static_and_pic_copies_in_two_archives_are_one_blob(
    lazyck: Lazyck, tmp_path: Path, more: str, lazy: int
) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "one.cpp").write_text('extern "C" int one(int x) { return x + 1; }\n' + more)
    (tmp_path / "main.cpp").write_text('extern "C" int one(int); extern "C" int run(int x) { return one(x); }\n')
    script = (
        "c++ -fPIC -c main.cpp -o main.o\nc++ -fPIC -DPIC -c blob/one.cpp -o pic.o\n"
        "c++ -fPIC -c blob/one.cpp -o static.o\nar rcs liba.a pic.o\nar rcs libb.a static.o\n"
        "c++ -shared -o libx.so main.o liba.a libb.a"
    )
    assert f"1 blob deferred, {lazy} lazy" in build(lazyck, tmp_path, script)
    assert call(tmp_path / "libx.so", "run") == [11]


def test_an_object_that_a_link_meets_more_than_once_is_one_blob(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "one.cpp").write_text('extern "C" int one(int x) { return x + 1; }\n')
    (tmp_path / "main.cpp").write_text('extern "C" int one(int); extern "C" int run(int x) { return one(x); }\n')
    script = (
        "c++ -fPIC -c main.cpp -o main.o\nc++ -fPIC -c blob/one.cpp -o one.o\n"
        "ar qc lib1.a one.o one.o\ncp lib1.a lib2.a\nc++ -shared -o libx.so main.o one.o lib1.a lib2.a lib1.a"
    )
    assert "1 blob deferred, 1 lazy" in build(lazyck, tmp_path, script)
    assert call(tmp_path / "libx.so", "run") == [11]


@pytest.mark.parametrize(
    "script",
    [
        "cp blob/v1.cpp keep; sed -i 's/x + 1/x + 2/' blob/v1.cpp; $CXX -c blob/v1.cpp -o v1.o; cp keep blob/v1.cpp",
        "$CXX -c blob/v1.cpp -o v1.o; sed -i 's/twice<1>/twice<2>/' blob/v1.cpp; $CXX -c blob/v1.cpp -o v2.o",
    ],
)
def test_a_source_that_the_build_changes_after_its_compile_ends_the_link(
    lazyck: Lazyck, tmp_path: Path, script: str
) -> None:
    project = Project(lazyck, tmp_path).write({1: body(1, "x + 1")})
    project.file("build.sh", f"set -e\nCXX='c++ {FLAGS}'\n{script}\n$CXX -c dispatch.cpp\n{SHARED}\n")
    done = lazyck("build", "full", "--toolchain", "host", "--", "sh", "build.sh", cwd=tmp_path)
    assert done.returncode != 0
    assert f"{tmp_path}/blob/v1.cpp: it has changed since it was compiled to {tmp_path}/v1.o" in done.stderr
    assert "keep it out of --blobs" in done.stderr


def test_a_header_that_the_build_writes_after_a_compile_is_named(lazyck: Lazyck, tmp_path: Path) -> None:
    project = Project(lazyck, tmp_path).write({1: body(1, "x + OF_HEADER")})
    project.file("n.h", "#define OF_HEADER 1\n")
    flags = f"{FLAGS} -include n.h"
    project.build(f"touch -d '+1 minute' n.h\n{SHARED}", flags)
    assert (
        f"1 header was written after a blob that may read it was compiled, for example {tmp_path}/n.h" in project.report
    )
