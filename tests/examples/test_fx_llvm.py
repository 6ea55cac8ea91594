"""Tests the example that turns graphs into LLVM IR: the whole demo, and its two sources of
graphs."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY
from support.llvm_tools import needs_llvmlite

EXAMPLE = REPOSITORY / "examples" / "fx_llvm"
HAS_TORCH = importlib.util.find_spec("torch") is not None
pytestmark = needs_llvmlite


def demo(work: Path, *options: str) -> str:
    argv = [sys.executable, str(EXAMPLE / "fx_llvm.py"), "--work", str(work), *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_demo_runs_with_graphs_written_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = tmp_path / "row.json"
    said = demo(tmp_path / "work", "--graphs", "hand", "--row", str(row))
    assert "96 blobs deferred, 96 lazy with 96 symbols, 0 eager" in said
    assert "24 of 96 blobs compiled, 0 of them twice" in said
    assert "22 objects for aarch64 (EM_AARCH64)" in said and "22 objects for riscv64 (EM_RISCV)" in said
    before = (tmp_path / "work" / "ir" / "add_4x64.before.ll").read_text()
    after = (tmp_path / "work" / "ir" / "add_4x64.after.ll").read_text()
    assert "alloca" in before and "<4 x float>" not in before
    assert "alloca" not in after and "fadd <4 x float>" in after
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    import table

    assert set(json.loads(row.read_text())) == set(table.COLUMNS)


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_graphs_traced_by_torch_give_the_same_ir_and_results(tmp_path: Path) -> None:
    # One process runs the demo and compares the graphs, since torch takes long to import.
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLE)!r})\nimport emit, fx_llvm, generate\nfx_llvm.main()\n"
        "traced, by_hand = generate.graphs('torch')[0], generate.graphs('hand')[0]\n"
        "assert traced == by_hand\nassert emit.modules(traced) == emit.modules(by_hand)\n"
        "print('compared:', len(traced))"
    )
    argv = [sys.executable, "-c", code, "--work", str(tmp_path / "work"), "--graphs", "torch"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"torch_error"') == 6
    assert done.stdout.endswith("\ncompared: 12\n")
