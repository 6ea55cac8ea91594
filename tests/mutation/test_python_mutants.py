"""Tests a few mutants of each module whose tests take no time: most of them are killed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("mutmut"), reason="needs mutmut (pip install -e '.[mutation]')")
def test_the_tests_of_keys_and_ownership_notice_small_faults() -> None:
    modules = [
        "trailer",
        "postbuild.ownership",
        "postbuild.probe.content_key",
        "remote.entry_name",
        "remote.entry_record",
    ]
    script = Path(__file__).with_name("python_run.py")
    words: list[str | Path] = [sys.executable, script, "--sample", "8", "--least", "85", *modules]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
