"""What all tests share: a clean environment, and the `lazyck` command as a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import HERE, REPOSITORY, Lazyck

from lazyck.config import tools_dir
from lazyck.files import private_directory
from lazyck.runtime.build import build_tool


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine decides a test, and no test writes into the user's cache."""
    for name in list(os.environ):
        if name.startswith(("LAZYCK_", "FAKE_ROCM_", "HIP", "ROCM_", "CUDA", "NVCC_", "GPU_ARCHS", "CCACHE_")):
            monkeypatch.delenv(name)
    for name in ("CXX", "CC", "CXXFLAGS", "CFLAGS", "LDFLAGS", "MAKEFLAGS", "NINJA_STATUS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAZYCK_CACHE_DIR", str(tmp_path / "lazyck-cache"))


@pytest.fixture
def lazyck() -> Lazyck:
    """Run the command line: `lazyck("build", "full", ..., cwd=..., env=...)`."""

    def run(
        *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lazyck", *map(str, words)],
            cwd=cwd or REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=600,
        )

    return run


@pytest.fixture(scope="session")
def objects_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where objects and programs for tests alone are made: shared by all tests of all xdist workers."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runtime-objects"


@pytest.fixture(scope="session")
def rt_tool() -> Path:
    """The executable `lazyck-rt`; where a user has it, since what is made there depends on nothing but its sources."""
    return build_tool(private_directory(tools_dir(os.environ)), [HERE.cxx])
