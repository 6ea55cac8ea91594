"""Fixtures for the tests of scripts/fake_rocm_home: its compiler as a real process, its launch log as records."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2] / "scripts" / "fake_rocm_home"
PROGRAMS = Path(__file__).resolve().parent / "programs"

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


@dataclass(frozen=True)
class Launch:
    """One line of the launch log."""

    pid: int
    role: str
    arch: str
    grid: str
    block: str
    shared: int
    kernel: str


def read_launches(log: Path) -> list[Launch]:
    if not log.exists():
        return []
    fields = [dict(word.split("=", 1) for word in line.split(" ")) for line in log.read_text().splitlines()]
    return [
        Launch(int(f["pid"]), f["role"], f["arch"], f["grid"], f["block"], int(f["shared"]), f["kernel"])
        for f in fields
    ]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command in the test's directory; expects success unless told otherwise."""

    def start(
        argv: Sequence[str | Path], env: Mapping[str, str] | None = None, stdin: str | None = None, fails: bool = False
    ) -> Result:
        done = subprocess.run(
            [str(word) for word in argv],
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode != 0) == fails, f"{argv}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return start


@pytest.fixture
def hipcc(run: Run) -> Run:
    def start(
        *words: str | Path, env: Mapping[str, str] | None = None, stdin: str | None = None, fails: bool = False
    ) -> Result:
        return run([HOME / "bin" / "hipcc", *words], env=env, stdin=stdin, fails=fails)

    return start


@pytest.fixture
def library_dir(run: Run) -> Path:
    """Where libamdhip64.so lies, built if this is the first use."""
    return Path(run([HOME / "bin" / "fake-rocm-build"]).stdout.strip())
