"""Tests that the fuzz targets find nothing in their corpora and some more inputs. run.sh runs them
for longer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY

from fuzz.python_targets import TARGETS

NATIVE = ("manifest", "elf", "entry", "shim_words", "shim_includes", "shim_headers")


@pytest.mark.parametrize(
    ("targets", "runs"), [pytest.param(NATIVE, 2000, id="native"), pytest.param(tuple(TARGETS), 500, id="python")]
)
def test_decoders_take_hostile_bytes(targets: tuple[str, ...], runs: int, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHON": sys.executable, "LAZYCK_FUZZ_DIR": str(tmp_path), "LAZYCK_FUZZ_RUNS": str(runs)}
    script = REPOSITORY / "tests" / "fuzz" / "run.sh"
    done = subprocess.run([script, "0", *targets], env=env, capture_output=True, text=True, timeout=300)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("number_of_executed_units") == len(targets)
