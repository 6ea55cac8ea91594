"""Tests a build tree that is built under lazyck, then without it: deferred objects are not silently
missing."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support import Lazyck
from support.later_builds import change
from support.twice_project import BLOB, COMPILE, run_library, write_project

from lazyck import abi

MAKEFILE = """
OBJS = dispatch.o blob/v1.o blob/v2.o
CXXFLAGS = -fPIC -I.
libx.so: $(OBJS)
\t$(CXX) $(LDFLAGS) -shared -o $@ $^
clean:
\trm -f libx.so $(OBJS)
"""


@pytest.fixture
def tree(tmp_path: Path, lazyck: Lazyck) -> Path:
    """Build a makefile's project lazily and return it."""
    write_project(tmp_path, [1, 2])
    (tmp_path / "Makefile").write_text(MAKEFILE)
    build_lazily(lazyck, tmp_path)
    return tmp_path


def build_lazily(lazyck: Lazyck, tree: Path) -> str:
    done = lazyck("build", "full", "--toolchain", "host", "--tmp-dir", tree / "tmp", "--", "make", cwd=tree)
    assert done.returncode == 0, done.stderr
    return done.stderr


def make(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=tree, capture_output=True, text=True)


def test_a_plain_make_fails_with_the_way_out_and_a_lazy_build_heals(tree: Path, lazyck: Lazyck) -> None:
    change(tree / "blob/v1.cpp", BLOB.format(n=1).replace("x * 2", "x * 3"))
    done = make(tree)  # This compiles v1 for real. v2 stays deferred.
    assert done.returncode != 0
    assert abi.DEFERRED_SYMBOL in done.stderr
    assert not (tree / "libx.so").exists()
    assert "1 blob deferred, 1 lazy" in build_lazily(lazyck, tree)
    assert [run_library(tree / "libx.so", n, 10).stdout for n in (1, 2)] == ["31\n", "22\n"]


def test_what_the_message_says_to_do_helps(tree: Path) -> None:
    assert "make_clean_first" in abi.DEFERRED_SYMBOL
    assert make(tree, "clean").returncode == 0
    assert make(tree).returncode == 0
    assert [run_library(tree / "libx.so", n, 10).stdout for n in (1, 2)] == ["21\n", "22\n"]


SHAPES = (
    "ar rcs liba.a v1.o\nar rcsT libt.a v2.o\nld -r -o merged.o v3.o\nar rcs libl.a v4.o\n"
    "c++ -fuse-ld={linker} -shared {flags} -o libx.so dispatch.o -Wl,--whole-archive,liba.a,libt.a -L. -ll "
    "-Wl,--no-whole-archive merged.o -Wl,v5.o\n"
)


@pytest.mark.parametrize("flags", ["", "-Wl,-z,defs -Wl,--gc-sections"])
@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
def test_deferred_objects_that_stay_in_a_lazy_link_do_no_harm(
    lazyck: Lazyck, tmp_path: Path, linker: str, flags: str
) -> None:
    if not shutil.which(f"ld.{linker}"):
        pytest.skip(f"ld.{linker} is not installed")
    write_project(tmp_path, [1, 2, 3, 4, 5])
    (tmp_path / "build.sh").write_text("set -e\n" + COMPILE + SHAPES.format(linker=linker, flags=flags))
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--", "sh", "build.sh"]
    done = lazyck(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "5 blobs deferred, 5 lazy" in done.stderr
    assert [run_library(tmp_path / "libx.so", n, 10).stdout for n in (1, 5)] == ["21\n", "25\n"]
    names = subprocess.run(["nm", "-D", tmp_path / "libx.so"], capture_output=True, text=True, check=True).stdout
    assert abi.DEFERRED_SYMBOL not in names


def test_deferred_members_stay_where_all_blobs_are_eager(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1])
    (tmp_path / "blob/v1.cpp").write_text('#include "twice.hpp"\nint data = 2;\n' + BLOB.format(n=1))
    link = "ar rcs liba.a v1.o\nc++ -shared -o libx.so dispatch.o -Wl,--whole-archive liba.a -Wl,--no-whole-archive\n"
    (tmp_path / "build.sh").write_text("set -e\n" + COMPILE + link)
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--", "sh", "build.sh"]
    done = lazyck(*words, cwd=tmp_path)
    assert "0 lazy with 0 symbols, 1 eager" in done.stderr
    assert run_library(tmp_path / "libx.so", 1, 10).stdout == "21\n"
