"""`lazyck build full --aiter-dir`: the command is filled in. (aiter itself: see docs/limits.md.)"""

from __future__ import annotations

import shutil
from pathlib import Path

from ops_library import PROJECT, call
from support import FAKE_ROCM, Lazyck

# In the shape of aiter's own script: one library per --api, archs and the bf16 mode from the environment.
COMPILE_PY = """
import os, subprocess, sys
api = sys.argv[1].removeprefix("--api=")
here = os.path.dirname(os.path.abspath(__file__))
assert os.environ["GPU_ARCHS"] == "gfx942", os.environ.get("GPU_ARCHS")
assert os.environ["CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT"] == "3"
subprocess.run([f"{here}/project/build.sh"], env={**os.environ, "OUT": f"{here}/{api}"}, check=True)
"""


def make_aiter(where: Path) -> Path:
    aiter = where / "aiter"
    mha = aiter / "op_tests" / "cpp" / "mha"
    mha.mkdir(parents=True)
    (aiter / "aiter" / "jit").mkdir(parents=True)
    (aiter / "aiter" / "jit" / "core.py").write_text("")
    (mha / "compile.py").write_text(COMPILE_PY)
    shutil.copytree(PROJECT, mha / "project")
    return aiter


def test_forward_and_backward_are_built_with_archs_and_bf16_mode(lazyck: Lazyck, tmp_path: Path) -> None:
    aiter = make_aiter(tmp_path)
    options = ["--aiter-dir", aiter, "--gpu-archs", "gfx942", "--ck-tile-bf16", "3", "--tmp-dir", tmp_path / "tmp"]
    done = lazyck("build", "full", *options, env={"ROCM_PATH": str(FAKE_ROCM)})
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("17 blobs deferred, 15 lazy") == 2, done.stderr
    for api in ("fwd", "bwd"):
        library = aiter / "op_tests" / "cpp" / "mha" / api / "libops.so"
        assert call(library, "print(special(64, 1))").stdout == "644.0\n"


def test_another_directory_is_a_usage_error(lazyck: Lazyck, tmp_path: Path) -> None:
    done = lazyck("build", "full", "--aiter-dir", tmp_path)
    assert done.returncode == 2
    assert "jit/core.py" in done.stderr


def test_a_command_of_ones_own_beside_it_is_a_usage_error(lazyck: Lazyck, tmp_path: Path) -> None:
    done = lazyck("build", "full", "--aiter-dir", make_aiter(tmp_path), "--", "make")
    assert done.returncode == 2
