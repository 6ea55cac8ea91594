"""Tests FlashAttention's CUDA extension under lazyck: the short form of examples/flash_attn."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import REPOSITORY

from lazyck.toolchains import CUDA


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.skipif(CUDA.find(os.environ) is None, reason="nvcc is not installed")
@pytest.mark.skipif(
    not all(map(find_spec, ("torch", "packaging", "psutil", "wheel"))),
    reason="torch, packaging, psutil or wheel is not installed (LAZYCK_TEST_TORCH=1 scripts/test -m slow)",
)
def test_every_instance_is_lazy_and_nothing_is_left_undefined(tmp_path: Path) -> None:
    script = REPOSITORY / "examples" / "flash_attn" / "flash_attention.py"
    argv = [sys.executable, str(script), "--work", str(tmp_path), "--no-call"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "72 blobs deferred, 72 lazy with 72 symbols, 0 eager" in done.stderr
    assert "72 lazy blobs, 72 of their functions are exported, 0 symbols are undefined" in done.stdout
