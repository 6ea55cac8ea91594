"""The fuzz targets build, and find nothing in their corpora and a few thousand more inputs (run.sh: for longer)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY


@pytest.mark.parametrize("target", ["manifest", "elf", "entry", "shim_words", "shim_includes", "shim_headers"])
def test_decoder_takes_hostile_bytes(target: str, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHON": sys.executable, "LAZYCK_FUZZ_DIR": str(tmp_path)}
    script = REPOSITORY / "tests" / "fuzz" / "run.sh"
    done = subprocess.run([script, "0", target], env=env, capture_output=True, text=True, timeout=300)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "number_of_executed_units" in done.stdout
