"""Run scripts/gpu without a GPU: every stage that can run goes as far as possible and says what it
could not check."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import FAKE_ROCM, REPOSITORY
from support.cuda_machine import cuda_home, needs_nvcc

HERE = Path(__file__).resolve().parent


def prove(work: Path, *words: str, **more: str) -> dict[str, Any]:
    """Run a short proof, and return the stages of gpu.json."""
    argv = [sys.executable, "-m", "gpu", "--short", "--work", str(work), "--seconds", "600", *words]
    env = {**os.environ, "PYTHONPATH": f"{HERE.parent}:{REPOSITORY}", **more}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=700)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((work / "gpu.json").read_text())["stages"]
    return found


@pytest.mark.cuda
@needs_nvcc
@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU: run scripts/gpu")
def test_what_needs_no_gpu_of_the_stages_for_cuda_is_seen(tmp_path: Path) -> None:
    names = ["attention", "handles", "graphs", "errors", "archs", "steady", "sanitizer"]
    found = prove(tmp_path, *names, CUDA_HOME=str(cuda_home()))
    assert {name: stage["state"] for name, stage in found.items()} == {
        "attention": "in part",
        "handles": "nothing to see",
        "graphs": "nothing to see",
        "errors": "nothing to see",
        "archs": "in part",
        "steady": "nothing to see",
        "sanitizer": "nothing to see",
    }
    details = [c["detail"] for stage in found.values() for c in stage["claims"] if c["state"] == "not seen"]
    assert details and all(detail.startswith("no GPU") for detail in details)


def test_the_stage_for_amd_computes_on_the_stand_in(tmp_path: Path) -> None:
    found = prove(tmp_path, "--hip", "attention", ROCM_PATH=str(FAKE_ROCM))["attention"]
    assert found["state"] == "passed"
    assert [c["text"] for c in found["claims"]][-1].startswith("all 2 variants, prebuilt and with LAZYCK_JIT=off")
