"""Tests every common build tool on one project: its library is lazy and computes what the
ahead-of-time library does."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import Lazyck
from support.ops_library import call, copy_project

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


@dataclass(frozen=True)
class Build:
    """A build of the project by one of the tools, in a copy of its own."""

    project: Path
    tool: str
    compiler: str

    @property
    def library(self) -> Path:
        return self.project / "build" / "libops.so"

    def run(self, lazyck: Lazyck) -> str:
        """Build lazily, for the first time or again. Return lazyck's report."""
        words = ("--toolchain", "host", "--tmp-dir", self.project.parent / "tmp", "--", *TOOLS[self.tool])
        done = lazyck("build", "full", *words, cwd=self.project, env={"CXX": self.compiler})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def built(lazyck_shared: Lazyck, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Build, str]]:
    """Return a function that builds by a tool and a compiler, once for this module, and returns the
    build with lazyck's report."""

    @functools.cache
    def build_by(tool: str, compiler: str) -> tuple[Build, str]:
        if not shutil.which(compiler):
            pytest.skip(f"needs {compiler}")
        if tool == "meson":
            pytest.importorskip("mesonbuild")
        build = Build(copy_project(tmp_path_factory.mktemp("built")), tool, compiler)
        return build, build.run(lazyck_shared)

    return build_by


@pytest.mark.parametrize(("tool", "compiler"), CASES)
def test_library_is_lazy_and_computes_the_same(
    built: Callable[[str, str], tuple[Build, str]], tool: str, compiler: str, expected: str
) -> None:
    build, report = built(tool, compiler)
    assert "17 blobs deferred, 15 lazy" in report
    lazy = call(build.library, SOME)
    assert lazy.stdout == expected, lazy.stderr
    assert "compiling special_d64_true" in lazy.stderr
    again = call(build.library, SOME, {"PATH": "/nonexistent"})
    assert (again.stdout, again.stderr) == (expected, "")


@pytest.mark.parametrize("tool", ["make", "ninja", "cmake-ninja", "cmake-make"])
def test_nothing_is_done_when_nothing_has_changed(
    built: Callable[[str, str], tuple[Build, str]], lazyck: Lazyck, tool: str
) -> None:
    build, _ = built(tool, "g++")
    before = build.library.stat().st_mtime_ns
    build.run(lazyck)
    assert build.library.stat().st_mtime_ns == before
