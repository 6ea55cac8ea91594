"""Provides a directory to build in through real shims, and ways to inspect what they left.

Fixtures are here and not in a conftest, because a second module of that name would hide the first.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lazyck.formats.record import decode_records
from lazyck.interceptor import shims
from lazyck.interceptor.log import LogLine, read_log
from lazyck.interceptor.setup import Interception, set_up
from lazyck.toolchains.command import CompileCommand, LinkCommand
from support import NINJA

SYSTEM_PATH = "/usr/bin:/bin"


def clean_env(**more: str) -> dict[str, str]:
    """Return an environment without any variable that names a toolchain."""
    kept = {k: v for k, v in os.environ.items() if k in ("HOME", "LANG", "TMPDIR")}
    return {**kept, "PATH": f"{SYSTEM_PATH}:{NINJA.parent}", **more}


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def records_of(path: Path) -> list[CompileCommand | LinkCommand]:
    """Return the records in an object's section, read with objcopy."""
    out = path.with_name(path.name + ".record")
    argv = ["objcopy", "-O", "binary", "--only-section=.lazyck.record", "--set-section-flags", ".lazyck.record=alloc"]
    subprocess.run([*argv, str(path), str(out)], check=True)
    return decode_records(out.read_bytes(), str(path))


@dataclass
class Project:
    """A directory to build in, and how builds see it with the shims."""

    dir: Path
    interception: Interception

    def run(self, *argv: str | Path, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(a) for a in argv],
            cwd=self.dir,
            env={**self.interception.env, **env},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="surrogateescape",
        )

    def ok(self, *argv: str | Path, stdin: str | None = None, **env: str) -> str:
        done = self.run(*argv, stdin=stdin, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def log(self) -> list[LogLine]:
        return read_log(self.interception.log)

    @property
    def last(self) -> LogLine:
        return self.log[-1]

    def write(self, name: str, text: str) -> Path:
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def compile(self, name: str) -> CompileCommand:
        """Return the record in the deferred object `name`."""
        (record,) = records_of(self.dir / name)
        assert isinstance(record, CompileCommand)
        return record


@pytest.fixture(scope="session")
def built_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp = tmp_path_factory.mktemp("shim")
    shims.build_shim(tmp, clean_env())
    return tmp / "shim"


MakeProject = Callable[..., Project]


@pytest.fixture
def make_project(tmp_path: Path, built_shim: Path) -> MakeProject:
    def make(
        env: Mapping[str, str] | None = None,
        toolchain: str = "auto",
        blobs: Sequence[str] = ("*/blob/*",),
        python: str = sys.executable,
    ) -> Project:
        tmp = tmp_path / "lazyck tmp"
        if not (tmp / "shim").exists():
            shutil.copytree(built_shim, tmp / "shim")
        found = set_up(tmp, toolchain, blobs, env or clean_env(), python=python, verbose=False)
        project = Project(tmp_path / "project", found)
        project.dir.mkdir(exist_ok=True)
        return project

    return make


@pytest.fixture
def host(make_project: MakeProject) -> Project:
    """Make a project of one blob with real host compilers only."""
    project = make_project(toolchain="host")
    project.write("blob/k.cpp", "int k() { return 7; }\n")
    return project


@pytest.fixture
def fake(tmp_path: Path, make_project: MakeProject) -> Project:
    """Make a project with compilers of all toolchains that only print `REAL <name>` and their
    words, and with a Python that prints `POST <record>`."""
    home = tmp_path / "fake"
    for tool in ("hipcc", "nvcc", "g++", "c++", "clang++"):
        script(home / "bin" / tool, f'echo "REAL {tool}"; printf "%s\\n" "$@"\n')
    python = script(tmp_path / "python", 'echo "POST $4"\n')
    project = make_project(clean_env(PATH=f"{home}/bin:{SYSTEM_PATH}"), python=str(python))
    for name in ("blob/k.cpp", "blob/k.cu", "blob/k.hip", "blob/l.cpp", "blob/a.S", "blob/h.hpp", "src/m.cpp"):
        project.write(name, "\n")
    return project
