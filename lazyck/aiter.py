"""aiter's own builds of its fused attention, as the command that `lazyck build full --aiter-dir` fills in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from lazyck.errors import UsageError

# The source archive lacks op_tests/: the same two libraries by name, through the same jit/core.py.
_FROM_CORE = """
import sys
sys.path.insert(0, sys.argv[1])
from jit.core import compile_ops
@compile_ops(sys.argv[2], fc_name="compile_" + sys.argv[2])
def build(): ...
build()
"""


def commands(aiter_dir: Path) -> list[list[str]]:
    """One command for the forward and one for the backward library. Raises `UsageError` for another directory."""
    root = aiter_dir.absolute()
    if not (root / "aiter" / "jit" / "core.py").is_file():
        raise UsageError(
            f"--aiter-dir {aiter_dir}: no aiter there (aiter/jit/core.py is missing)",
            "give a checkout of aiter, or the unpacked amd-aiter source archive",
        )
    script = root / "op_tests" / "cpp" / "mha" / "compile.py"
    if script.is_file():
        return [[sys.executable, str(script), f"--api={api}"] for api in ("fwd", "bwd")]
    return [[sys.executable, "-c", _FROM_CORE, str(root / "aiter"), f"libmha_{api}"] for api in ("fwd", "bwd")]


def environment(archs: tuple[str, ...], ck_tile_bf16: int | None) -> Mapping[str, str]:
    """What aiter's build reads from the environment."""
    env = {"GPU_ARCHS": ";".join(archs)} if archs else {}
    if ck_tile_bf16 is not None:
        env["CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT"] = str(ck_tile_bf16)
    return env
