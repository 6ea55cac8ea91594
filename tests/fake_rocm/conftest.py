"""Provides fixtures for the tests of scripts/fake_rocm_home, with its compiler as a real
process."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.launches import HOME, Result, Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a command in the test's directory. The command must succeed, or
    fail if `fails` is true."""

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
    """Return the directory of libamdhip64.so, which is built if this is the first use."""
    return Path(run([HOME / "bin" / "fake-rocm-build"]).stdout.strip())
