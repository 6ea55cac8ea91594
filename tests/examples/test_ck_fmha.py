"""Tests CK's fused attention under lazyck: the short form of examples/ck_fmha, with a real HIP
compiler."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "ck_fmha"


@pytest.mark.hip
def test_one_direction_links_lazily_with_every_symbol_stubbed_and_a_blob_prebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import rocm_home

    if rocm_home.missing_packages():
        pytest.skip(f"needs a real HIP compiler: {rocm_home.missing_packages()}")
    words = ["--work", str(tmp_path), "--libraries", "fwd", "--only", "fwd_appendkv", "--samples", "0"]
    argv = [sys.executable, str(EXAMPLE / "ck_fmha.py"), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| blobs deferred | 96 |" in done.stdout
    assert "| undefined after the link | 0 |" in done.stdout
    assert "prebuilt fmha_fwd_appendkv_d" in done.stdout
