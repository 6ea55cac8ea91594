"""Test g++ and clang++ as host toolchains: a small library computes equal results with each."""

import shutil
from pathlib import Path

import pytest
from support import Lazyck
from support.ops_library import Ops, copy_project, inspect

CODE = """
print(special(64, 1), instance("int", 3))
"""
CLANG = next((c for c in ("clang++-19", "clang++-15", "clang++") if shutil.which(c)), None)


@pytest.mark.parametrize("compiler", ["g++", CLANG])
def test_a_host_compiler_builds_calls_and_caches(lazyck: Lazyck, tmp_path: Path, compiler: str | None) -> None:
    if compiler is None:
        pytest.skip("needs clang++: apt-get install clang-19")
    project = copy_project(tmp_path)
    options = ["--toolchain", "host", "--tmp-dir", str(tmp_path / "tmp")]
    done = lazyck("build", "full", *options, "--", project / "build.sh", env={"CXX": compiler})
    assert done.returncode == 0, done.stdout + done.stderr
    ops = Ops(project, project / "build" / "libops.so", tmp_path / "tmp", done.stderr)
    kind = "clang" if "clang" in compiler else "gcc"
    assert {b["toolchain_id"].startswith(kind) for b in inspect(lazyck, ops.library)["recipes"]} == {True}
    first = ops.call(CODE)
    assert first.stdout == "644.0 30.0\n", first.stderr
    assert "compiling special_d64_true" in first.stderr
    second = ops.call(CODE, {"PATH": "/nonexistent"})
    assert (second.stdout, second.stderr) == (first.stdout, "")
