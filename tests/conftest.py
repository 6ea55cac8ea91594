"""What all tests share: a clean environment, and the `lazyck` command as a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import oracle
import pytest
from support import HERE, REPOSITORY, Lazyck, Once

from lazyck.config import tools_dir
from lazyck.files import private_directory
from lazyck.prebuild.ninja_program import find_ninja
from lazyck.runtime.build import build_tool


def pytest_configure() -> None:
    """Puts lazyck's own `ninja` at the end of PATH, where an interpreter started by its path may find none."""
    os.environ["PATH"] += f"{os.pathsep}{find_ninja(os.environ).parent}"


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable or file of the user decides a test, and no test writes into the user's cache."""
    for name in list(os.environ):
        if name == "LAZYCK" or name.startswith(
            ("LAZYCK_", "FAKE_ROCM_", "HIP", "ROCM_", "CUDA", "NVCC_", "GPU_ARCHS", "CCACHE_")
        ):
            monkeypatch.delenv(name)
    for name in ("CXX", "CC", "CXXFLAGS", "CFLAGS", "LDFLAGS", "MAKEFLAGS", "NINJA_STATUS", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAZYCK_CACHE_DIR", str(tmp_path / "lazyck-cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="session")
def shared_lazyck(tmp_path_factory: pytest.TempPathFactory) -> Lazyck:
    """The `lazyck` of fixtures that several tests share: what it builds counts for the first of them."""
    return command_line(tmp_path_factory, "", is_exempt=False)


@pytest.fixture
def lazyck(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lazyck:
    """Run the command line: `lazyck("build", "full", ..., cwd=..., env=...)`.

    What it builds must be the same as ahead of time, unless the test is marked `differs`.
    """
    is_exempt = request.node.get_closest_marker("differs") is not None
    return command_line(tmp_path_factory, request.node.nodeid, is_exempt=is_exempt)


def command_line(tmp_path_factory: pytest.TempPathFactory, test: str, *, is_exempt: bool) -> Lazyck:
    """What runs the command line for `test`, and compares what it builds unless that `is_exempt`."""

    def run(
        *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        full_env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})}
        done = subprocess.run(
            [sys.executable, "-m", "lazyck", *map(str, words)],
            cwd=cwd or REPOSITORY,
            env=full_env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=600,
        )
        tmp = oracle.tmp_dir_of(list(map(str, words)), cwd or REPOSITORY)
        if done.returncode == 0 and tmp is not None and oracle.ORACLE != "off" and not is_exempt:
            seen = shared_dir(tmp_path_factory) / "oracle"
            name = test or os.environ.get("PYTEST_CURRENT_TEST", "")
            oracle.report(list(oracle.check_build(tmp, seen, name.partition("[")[0], full_env)), name)
        return done

    return run


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """What is built once in a run of the tests, by the xdist worker that needs it first: see `Once`."""
    return Once(shared_dir(tmp_path_factory) / "once")


@pytest.fixture(scope="session")
def objects_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where objects and programs for tests alone are made: shared by all tests of all xdist workers."""
    return shared_dir(tmp_path_factory) / "runtime-objects"


def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all xdist workers of a session have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def rt_tool() -> Path:
    """The executable `lazyck-rt`; where a user has it, since what is made there depends on nothing but its sources."""
    return build_tool(private_directory(tools_dir(os.environ)), [HERE.cxx])
