"""Tests that CMake's own install steps install the bundle of a lazy library, without a change to
the project."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import Lazyck
from support.twice_project import BLOB, run_library, write_project

from lazyck.postbuild.objects.embedded import read_manifest

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")

PROJECT = """cmake_minimum_required(VERSION 3.16)
project(p CXX)
add_subdirectory(sub)
"""
LISTS = """add_library(x SHARED ../dispatch.cpp ../blob/v1.cpp ../blob/v2.cpp)
target_include_directories(x PRIVATE ..)
set_target_properties(x PROPERTIES VERSION 3.1 SOVERSION 3 INSTALL_RPATH "$ORIGIN/a/place")
add_executable(prog ../main.cpp ../blob/v3.cpp)
target_include_directories(prog PRIVATE ..)
install(TARGETS x LIBRARY DESTINATION lib/deep COMPONENT libraries)
install(TARGETS prog RUNTIME DESTINATION bin COMPONENT programs)
include(CPack)
"""
MAIN = '#include <cstdio>\n#include "twice.hpp"\nint main() { std::printf("%d\\n", twice<3>(10)); }\n'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cmake install")


@pytest.fixture
def tree(shared: Path, lazyck: Lazyck) -> Path:
    """Return a project with a versioned library and a program in a subdirectory, built lazily by
    Ninja in `b`."""
    tree = shared / "project"
    if not tree.exists():
        write_project(tree, [1, 2])
        (tree / "blob/v3.cpp").write_text(BLOB.format(n=3))
        (tree / "main.cpp").write_text(MAIN)
        (tree / "sub").mkdir()
        (tree / "sub/CMakeLists.txt").write_text(LISTS)
        (tree / "CMakeLists.txt").write_text(PROJECT)
        done = build(lazyck, tree, "cmake -G Ninja -S . -B b && cmake --build b && cmake --install b --prefix inside")
        assert done.returncode == 0, done.stderr
    return tree


def build(lazyck: Lazyck, tree: Path, command: str) -> subprocess.CompletedProcess[str]:
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", tree / "tmp", "--", "sh", "-c", command]
    return lazyck(*words, cwd=tree)


def run(tree: Path, *words: str | Path, **env: str) -> str:
    done = subprocess.run([*map(str, words)], cwd=tree, env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(tree: Path, prefix: Path) -> None:
    """Check that the library installed at `prefix` compiles its blobs without the build's tmp
    dir."""
    away = tree / "away"
    (tree / "tmp").rename(away)
    try:
        for n in (1, 2):
            done = run_library(prefix / "lib/deep/libx.so", n, 10)
            assert (done.stdout, "compiling" in done.stderr) == (f"{20 + n}\n", True), done.stderr
        assert run(tree, prefix / "bin/prog") == "23\n"
    finally:
        away.rename(tree / "tmp")


def test_an_install_in_the_wrapped_command_carries_the_bundle(tree: Path) -> None:
    check(tree, tree / "inside")
    assert sorted(p.name for p in (tree / "inside/lib/deep").iterdir()) == [
        "lazyck", "libx.so", "libx.so.3", "libx.so.3.1",
    ]  # fmt: skip


def test_an_install_after_it_does_too_for_parts_and_for_packages(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "a root"
    for part in ("libraries", "programs"):
        run(tree, "cmake", "--install", "b", "--prefix", "/usr/x", "--component", part, DESTDIR=str(root))
    check(tree, root / "usr/x")
    run(tree / "b", "cpack", "-G", "TGZ", "--config", "CPackConfig.cmake", "-B", tmp_path / "packed")
    names = run(tree, "tar", "-tzf", next((tmp_path / "packed").glob("*.tar.gz")))
    assert "lib/deep/lazyck/libx/sources.tar.gz" in names
    assert "bin/lazyck/prog/manifest" in names


def test_a_build_with_nothing_to_do_sees_to_it_after_a_new_configuration(
    tree: Path, lazyck: Lazyck, tmp_path: Path
) -> None:
    run(tree, "cmake", f"-DCMAKE_INSTALL_PREFIX={tmp_path}/new", "b")  # CMake writes the install script anew
    done = build(lazyck, tree, "cmake --build b")
    assert "libx: up to date" in done.stderr, done.stderr
    assert "no work to do" in run(tree, "ninja", "-C", "b")
    run(tree, "ninja", "-C", "b", "install")
    check(tree, tmp_path / "new")


def test_another_library_of_the_name_takes_no_bundle_along(tree: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    hooks = [line for line in (tree / "b/cmake_install.cmake").read_text().splitlines() if "lazyck" in line]
    assert len(hooks) == 2  # one for each target, after any number of builds
    ahead = tree / "b/sub/libx.so.3.1"
    lazy = ahead.read_bytes()
    try:
        ahead.write_bytes(lazy.replace(read_manifest(ahead).digest.encode(), b"-" * 64))
        run(tree, "cmake", "--install", "b", "--prefix", place)
    finally:
        ahead.write_bytes(lazy)
    assert (place / "lib/deep/libx.so.3.1").exists() and not (place / "lib/deep/lazyck").exists()
    assert (place / "bin/lazyck/prog").exists()


def test_a_copy_without_its_bundle_says_what_to_put_where(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "libx.so.3.1"
    shutil.copy(tree / "b/sub/libx.so.3.1", copy)
    assert run_library(copy, 1, 10).stdout == "21\n"  # the build still exists
    env = {**os.environ, "LAZYCK_CACHE_DIR": str(tmp_path / "empty")}
    code = f"import ctypes; print(ctypes.CDLL('{copy}').run(1, 10))"
    (tree / "tmp").rename(tree / "away")
    try:
        failed = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        place = f"{tmp_path}/lazyck/libx"
        (old,) = {line.split("' nor '")[1].split("'")[0] for line in failed.stderr.splitlines() if "' nor '" in line}
        assert old.startswith(f"{tree}/tmp/libs/libx-"), failed.stderr
        assert f"is not at '{place}' nor '{old}'; copy lazyck/libx of the build's install dir to {place}, or" in (
            failed.stderr
        )
        shutil.copytree(tree / "inside/lib/deep/lazyck/libx", place)
        assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == "21\n"
    finally:
        (tree / "away").rename(tree / "tmp")
