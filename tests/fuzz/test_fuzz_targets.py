"""Tests that the fuzz targets find nothing in their corpora and some more inputs. run.sh runs them
for longer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from python_targets import TARGETS
from support import REPOSITORY

NATIVE = ("manifest", "elf", "entry", "shim_words", "shim_includes", "shim_headers")


def run(target: str, out: Path, runs: int) -> None:
    env = {**os.environ, "PYTHON": sys.executable, "LAZYCK_FUZZ_DIR": str(out), "LAZYCK_FUZZ_RUNS": str(runs)}
    script = REPOSITORY / "tests" / "fuzz" / "run.sh"
    done = subprocess.run([script, "0", target], env=env, capture_output=True, text=True, timeout=300)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "number_of_executed_units" in done.stdout


@pytest.mark.parametrize("target", NATIVE)
def test_decoder_takes_hostile_bytes(target: str, tmp_path: Path) -> None:
    run(target, tmp_path, 2000)


@pytest.mark.parametrize("target", TARGETS)
def test_python_decoder_takes_hostile_bytes(target: str, tmp_path: Path) -> None:
    run(target, tmp_path, 500)
