"""Tests builds that find all or some outputs up to date: lazy libraries are reported and delivered
all the same.

It also tests builds that find everything done without lazyck, which CI wants to fail.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from support import Lazyck
from support.later_builds import change
from support.twice_project import run_library, write_project

MAKEFILE = """
CXXFLAGS = -fPIC -I.
all: libx.so.3.1 prog
libx.so.3.1: dispatch.o blob/v1.o blob/v2.o
\t$(CXX) -shared -Wl,-soname,libx.so.3 -o $@ $^
\tln -sf $@ libx.so.3
\tln -sf libx.so.3 libx.so
prog: main.o blob/v3.o
\t$(CXX) -o $@ $^
\tln -sf prog prog-three
clean:
\trm -f libx.so* prog *.o blob/*.o
"""
MAIN = '#include <cstdio>\n#include "twice.hpp"\nint main() { std::printf("%d\\n", twice<3>(10)); }\n'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up to date")


@pytest.fixture
def tree(shared: Path, lazyck: Lazyck) -> Path:
    """Build a versioned library and a program lazily, without an install dir."""
    tree = shared / "project"
    if not tree.exists():
        write_project(tree, [1, 2])
        (tree / "blob/v3.cpp").write_text('#include "twice.hpp"\ntemplate <> int twice<3>(int x) { return x * 3; }\n')
        (tree / "main.cpp").write_text(MAIN)
        (tree / "Makefile").write_text(MAKEFILE)
    assert build(lazyck, tree).returncode == 0
    return tree


def build(
    lazyck: Lazyck, tree: Path, *options: str | Path, command: str = "make", **env: str
) -> subprocess.CompletedProcess[str]:
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", tree / "tmp", *options, "--", "sh", "-c", command]
    return lazyck(*words, cwd=tree, env=env)


def links(directory: Path) -> dict[str, str]:
    return {p.name: str(p.readlink()) for p in directory.iterdir() if p.is_symlink()}


SO_LINKS = {"libx.so.3": "libx.so.3.1", "libx.so": "libx.so.3", "prog-three": "prog"}


def test_a_build_with_nothing_to_do_tells_of_its_libraries_and_installs_them(
    tree: Path, lazyck: Lazyck, tmp_path: Path
) -> None:
    install = tmp_path / "install"
    done = build(lazyck, tree, "--install-dir", install, "--require-lazy")
    assert done.returncode == 0, done.stderr
    assert "libx: up to date, 2 blobs, 2 lazy with 2 symbols, 0 eager" in done.stderr
    assert "prog: up to date, 1 blob, 1 lazy" in done.stderr
    assert f"{install}/libx.so.3.1\n" in done.stderr
    assert "nothing is lazy" not in done.stderr
    assert sorted(p.name for p in install.iterdir() if not p.is_symlink()) == ["lazyck", "libx.so.3.1", "prog"]
    assert links(install) == SO_LINKS
    moved = tmp_path / "moved"
    shutil.copytree(install, moved, symlinks=True)
    assert run_library(moved / "libx.so", 2, 10).stdout == "22\n"
    called = subprocess.run([moved / "prog-three"], capture_output=True, text=True)
    assert called.stdout == "30\n", called.stderr
    inodes = {p: p.lstat().st_ino for p in install.rglob("*")}
    assert build(lazyck, tree, "--install-dir", install).returncode == 0
    assert {p: p.lstat().st_ino for p in install.rglob("*")} == inodes  # a build with nothing to do changes no file


def test_links_and_programs_are_installed_by_the_build_that_makes_them(
    tree: Path, lazyck: Lazyck, tmp_path: Path
) -> None:
    install = tmp_path / "install"
    done = build(lazyck, tree, "--install-dir", install, command="make clean all")
    assert done.returncode == 0, done.stderr
    assert "libx: 2 blobs deferred" in done.stderr
    assert links(install) == SO_LINKS
    assert subprocess.run([install / "prog"], capture_output=True, text=True).stdout == "30\n"


def test_what_is_linked_again_and_what_is_not_are_both_told(tree: Path, lazyck: Lazyck, tmp_path: Path) -> None:
    change(tree / "main.cpp", MAIN + "// changed\n")
    done = build(lazyck, tree, "--install-dir", tmp_path / "install")
    assert "libx: up to date" in done.stderr
    assert "prog: 1 blob deferred, 1 lazy" in done.stderr
    assert {p.name for p in (tmp_path / "install").iterdir()} >= {"libx.so.3.1", "prog", *SO_LINKS}


def test_a_library_that_the_build_stripped_is_up_to_date_and_one_that_is_gone_is_not_told(
    tree: Path, lazyck: Lazyck
) -> None:
    subprocess.run(["strip", tree / "libx.so.3.1"], check=True)
    assert "libx: up to date" in build(lazyck, tree).stderr
    done = build(lazyck, tree, command="make clean")
    assert ": up to date" not in done.stderr
    assert "nothing is lazy" in done.stderr


def test_a_library_that_was_built_without_the_shims_since_is_not_taken_for_lazy(
    tree: Path, lazyck: Lazyck, tmp_path: Path
) -> None:
    subprocess.run(["make", "clean", "all"], cwd=tree, check=True, capture_output=True)
    done = build(lazyck, tree, "--install-dir", tmp_path / "install", CI="true")
    assert done.returncode == 1
    assert "libx.so.3.1 is no longer lazy: it was rebuilt without lazyck" in done.stderr
    assert not (tmp_path / "install").exists()
    assert ": up to date" not in done.stderr
    done = build(lazyck, tree, command="make clean all")
    assert "libx: 2 blobs deferred, 2 lazy" in done.stderr


def test_a_tree_that_was_moved_is_told_where_its_bundles_are_now(tree: Path, lazyck: Lazyck, tmp_path: Path) -> None:
    here = tmp_path / "elsewhere"
    shutil.copytree(tree, here, symlinks=True)
    shutil.move(tree, tmp_path / "away")
    try:
        assert run_library(here / "libx.so", 1, 10).returncode != 0  # its bundle was in the old place
        done = build(lazyck, here)
        assert "libx: up to date" in done.stderr, done.stderr
        assert run_library(here / "libx.so", 1, 10).stdout == "21\n"
        assert lazyck("build", "quick", "--tmp-dir", here / "tmp").stdout.count("nothing to do") == 2
        assert lazyck("prebuild", "build", "--all", "--manifest", here / "prog").returncode == 0
    finally:
        shutil.move(tmp_path / "away", tree)


@pytest.mark.parametrize(
    ("options", "env", "status"),
    [
        ([], {}, 0),
        (["--require-lazy"], {}, 1),
        ([], {"CI": "true"}, 1),
        ([], {"CI": "false"}, 0),
        (["--no-require-lazy"], {"CI": "1"}, 0),
    ],
)
def test_a_build_directory_that_was_configured_without_the_shims(
    lazyck: Lazyck, shared: Path, options: list[str], env: dict[str, str], status: int
) -> None:
    tree = shared / "configured"
    if not tree.exists():
        write_project(tree, [1])
        (tree / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(p CXX)\nadd_library(x SHARED dispatch.cpp blob/v1.cpp)\n"
            "target_include_directories(x PRIVATE .)\n"
        )
        subprocess.run(["cmake", "-S", ".", "-B", "b"], cwd=tree, check=True, capture_output=True)
    done = build(lazyck, tree, *options, command="cmake --build b --clean-first", **env)
    assert done.returncode == status, done.stderr
    assert "nothing is lazy" in done.stderr
    assert ("no blob was deferred, and --require-lazy" in done.stderr) == bool(status)
    assert ("which the variable CI implies" in done.stderr) == (env.get("CI") == "true")


def test_a_build_that_fails_keeps_its_own_status(lazyck: Lazyck, tmp_path: Path) -> None:
    done = build(lazyck, tmp_path, "--require-lazy", command="exit 37")
    assert done.returncode == 37
    assert "require-lazy" not in done.stderr
