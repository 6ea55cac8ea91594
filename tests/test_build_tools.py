"""Tests every common build tool on one project: its library is lazy and computes what the
ahead-of-time library does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ops_library import call, copy_project
from support import Lazyck

TOOLS = {
    "shell": ("sh", "build.sh"),
    "make": ("make", "-j2"),
    "ninja": (sys.executable, "-m", "ninja"),
    "cmake-ninja": ("sh", "-c", "cmake -G Ninja -S . -B build && cmake --build build"),
    "cmake-make": ("sh", "-c", "cmake -G 'Unix Makefiles' -S . -B build && cmake --build build -j2"),
    "meson": (
        "sh",
        "-c",
        f"'{sys.executable}' -m mesonbuild.mesonmain setup build . && '{sys.executable}' -m ninja -C build",
    ),
}
CASES = [(tool, "g++") for tool in TOOLS] + [("shell", "clang++-19"), ("cmake-ninja", "clang++-19")]
SOME = "print(special(64, 1), instance('double', 3), plain(4), lib.ops_table(2), lib.ops_registered())"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the results of the library that is built ahead of time."""
    project = copy_project(tmp_path_factory.mktemp("ahead"))
    subprocess.run([project / "build.sh"], check=True, env={k: v for k, v in os.environ.items() if k != "CXX"})
    done = call(project / "build" / "libops.so", SOME)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("tool", "compiler"), CASES)
def test_library_is_lazy_and_computes_the_same(
    lazyck: Lazyck, tmp_path: Path, tool: str, compiler: str, expected: str
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")
    if tool == "meson":
        pytest.importorskip("mesonbuild")
    project = copy_project(tmp_path)
    words = ("--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--", *TOOLS[tool])
    done = lazyck("build", "full", *words, cwd=project, env={"CXX": compiler})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "17 blobs deferred, 15 lazy" in done.stderr
    lazy = call(project / "build" / "libops.so", SOME)
    assert lazy.stdout == expected, lazy.stderr
    assert "compiling special_d64_true" in lazy.stderr
    again = call(project / "build" / "libops.so", SOME, {"PATH": "/nonexistent"})
    assert (again.stdout, again.stderr) == (expected, "")


@pytest.mark.parametrize("tool", ["make", "ninja", "cmake-ninja", pytest.param("cmake-make", marks=pytest.mark.slow)])
def test_nothing_is_done_when_nothing_has_changed(lazyck: Lazyck, tmp_path: Path, tool: str) -> None:
    project = copy_project(tmp_path)

    def build() -> subprocess.CompletedProcess[str]:
        words = ("--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--", *TOOLS[tool])
        return lazyck("build", "full", *words, cwd=project)

    assert build().returncode == 0
    library = project / "build" / "libops.so"
    before = library.stat().st_mtime_ns
    again = build()
    assert again.returncode == 0, again.stdout + again.stderr
    assert library.stat().st_mtime_ns == before
