"""aiter's own builds of its fused attention, as the commands that `lazyck build full --aiter-dir` fills in."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from lazyck import proc
from lazyck.errors import ToolchainError, UsageError

# Composable Kernel's generator names each variant by its head dim. What else it and aiter put into `blob` dispatches
# (fmha_fwd_api.cpp, mha_fwd.cpp, asm_fmha_fwd_v3_gfx942.cpp): that is never to be deferred.
BLOBS = ("*/blob/*_d[0-9]*.cpp",)
APIS = ("fwd", "bwd")

# The source archive and an installed aiter lack op_tests/: the same two libraries by name, through the same core.py.
# They have their sources in `aiter_meta`, where core.py looks only if a package `aiter` can be found; what it has built
# it copies to op_tests/cpp/mha. The functions are named as in aiter's script: with torch installed, core.py registers
# any other as an operator.
_FROM_CORE = """
import os, sys
root, api = sys.argv[1:]
sys.path.insert(0, os.path.join(root, "aiter"))
sys.path.append(root)
os.makedirs(os.path.join(root, "op_tests", "cpp", "mha"), exist_ok=True)
from jit.core import compile_ops
def build(): ...
build.__name__ = f"compile_mha_{api}"
compile_ops(f"libmha_{api}", fc_name=build.__name__)(build)()
"""

# What core.py and its helpers may import beside the standard library to build these two; torch is not among it.
_MODULES = ("packaging", "pandas", "psutil", "setuptools")


def commands(aiter_dir: Path, env: Mapping[str, str]) -> list[list[str]]:
    """One command for the forward and one for the backward library.

    Raises `UsageError` for a directory that is not aiter, `ToolchainError` when aiter's build would miss something.
    """
    root = aiter_dir.absolute()
    if not (root / "aiter" / "jit" / "core.py").is_file():
        raise UsageError(
            f"--aiter-dir {aiter_dir}: no aiter there (aiter/jit/core.py is missing)",
            "give a checkout of aiter, or the unpacked amd-aiter source archive",
        )
    modules = missing_modules(root)
    if modules:
        raise ToolchainError(
            f"--aiter-dir {aiter_dir}: aiter's build imports {', '.join(modules)}, which {sys.executable} lacks",
            f"{sys.executable} -m pip install {' '.join(modules)}",
        )
    if proc.find_program("ninja", env) is None:
        raise ToolchainError(
            f"--aiter-dir {aiter_dir}: aiter's build runs `ninja`, which is not on PATH",
            "activate the virtual environment that lazyck is in, which brings one, or install ninja",
        )
    script = root / "op_tests" / "cpp" / "mha" / "compile.py"
    if script.is_file():
        return [[sys.executable, str(script), f"--api={api}"] for api in APIS]
    unknown = [f"libmha_{api}" for api in APIS if f"libmha_{api}" not in known_libraries(root)]
    if unknown:
        raise UsageError(
            f"--aiter-dir {aiter_dir}: neither op_tests/cpp/mha/compile.py nor {' and '.join(unknown)} in "
            "aiter/jit/optCompilerConfig.json",
            "give a whole checkout of this version of aiter",
        )
    return [[sys.executable, "-c", _FROM_CORE, str(root), api] for api in APIS]


def missing_modules(root: Path) -> list[str]:
    """Python packages that aiter's build imports and that this Python lacks."""
    jit = root / "aiter" / "jit"
    text = "".join(p.read_text(errors="replace") for p in (jit / "core.py", *sorted(jit.glob("utils/*.py"))))
    imported = [m for m in _MODULES if re.search(rf"^\s*(?:import|from)\s+{m}\b", text, re.MULTILINE)]
    return [m for m in imported if importlib.util.find_spec(m) is None]


def known_libraries(root: Path) -> frozenset[str]:
    """The names that aiter's table of modules has; empty where there is none that can be read."""
    try:
        return frozenset(json.loads((root / "aiter" / "jit" / "optCompilerConfig.json").read_text()))
    except (OSError, ValueError):
        return frozenset()


def locks(aiter_dir: Path, env: Mapping[str, str]) -> list[Path]:
    """Lock files of aiter's two builds that are there already: it waits for them without end and without a word.

    They are plain files, which a build that was killed leaves behind; nothing says whether somebody holds one.
    """
    own = aiter_dir.absolute() / "aiter" / "jit"
    build = Path(env.get("AITER_JIT_DIR") or own) / "build"
    found = (p for api in APIS for p in (build / f"lock_libmha_{api}", build / f"libmha_{api}" / "build" / "lock"))
    return [p for p in found if p.exists()]


def environment(ck_tile_bf16: int | None) -> Mapping[str, str]:
    """What aiter's build reads from the environment, apart from the archs, which every ROCm build is given."""
    return {} if ck_tile_bf16 is None else {"CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT": str(ck_tile_bf16)}
