"""Builds the tiny library of tests/projects/ops lazily, and calls it in processes of its own."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from support import REPOSITORY, Lazyck

PROJECT = REPOSITORY / "tests" / "projects" / "ops"
CALLER = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
f4 = ctypes.c_float * 4
def special(dim, masked):
    out = f4()
    lib.ops_special.restype = ctypes.c_double
    return lib.ops_special(dim, masked, f4(1, 2, 3, 4), out, 4)
def failing(dim, masked):
    out = (ctypes.c_float * 4000)()
    lib.ops_special.restype = ctypes.c_double
    r = lib.ops_special(dim, masked, out, out, 4000)
    return r, bytes(out).split(b"\\0")[0].decode()
def instance(kind, scale):
    lib.ops_instance.restype = ctypes.c_double
    return lib.ops_instance(kind.encode(), scale, 4)
def name():
    out = ctypes.create_string_buffer(200)
    lib.ops_name(out, 200)
    return out.value.decode()
def plain(x):
    lib.ops_plain.restype = ctypes.c_double
    return lib.ops_plain(ctypes.c_float(x))
"""


@dataclass(frozen=True)
class Ops:
    """A copy of the project, built lazily."""

    project: Path
    library: Path
    tmp: Path
    report: str

    def call(self, code: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python `code` with the library loaded as `lib`, in a new process."""
        return call(self.library, code, env)


def call(library: Path, code: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python `code` in a new process with `library` loaded as `lib`."""
    argv = [sys.executable, "-c", CALLER + textwrap.dedent(code), str(library)]
    return subprocess.run(argv, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=300)


def copy_project(where: Path) -> Path:
    """Copy the project to a path with a space, which reveals quoting mistakes."""
    project = where / "my ops"
    shutil.copytree(PROJECT, project)
    return project


def build_ops(lazyck: Lazyck, where: Path, *options: str) -> Ops:
    """Build the copy of the project (made if missing) under `lazyck build full`. A failed build
    fails the test."""
    project = where / "my ops"
    if not project.exists():
        copy_project(where)
    tmp = where / "tmp"
    done = lazyck("build", "full", "--toolchain", "host", "--tmp-dir", tmp, *options, "--", project / "build.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    return Ops(project, project / "build" / "libops.so", tmp, done.stderr)


def inspect(lazyck: Lazyck, library: Path) -> dict:  # type: ignore[type-arg]
    """Return the decoded output of `lazyck inspect --json`."""
    done = lazyck("inspect", library, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]
