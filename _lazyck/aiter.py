"""The commands of aiter's own builds of its fused attention, which `lazyck build full --aiter-dir`
runs."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from _lazyck import proc
from _lazyck.errors import ToolchainError, UsageError

# Composable Kernel's generator names each variant by its head dim. The other files that it and
# aiter put into `blob` are dispatchers (fmha_fwd_api.cpp, mha_fwd.cpp, asm_fmha_fwd_v3_gfx942.cpp),
# which must never be deferred.
BLOBS = ("*/blob/*_d[0-9]*.cpp",)
APIS = ("fwd", "bwd")

# The source archive of aiter and an installed aiter lack op_tests/. This script builds the same two
# libraries by name, through the same core.py. Their sources are in `aiter_meta`, where core.py
# looks only if it can find a package `aiter`. It copies the results to op_tests/cpp/mha. The
# functions have the names that aiter's script gives them: if torch is installed, core.py registers
# a function of any other name as an operator.
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

# The modules outside the standard library that core.py and its helpers may import to build these
# two libraries. torch is not among them.
_MODULES = ("packaging", "pandas", "psutil", "setuptools")


def commands(aiter_dir: Path, env: Mapping[str, str]) -> list[list[str]]:
    """Return one command for the forward library and one for the backward library.

    Raises `UsageError` for a directory that is not aiter, and `ToolchainError` if something that
    aiter's build needs is missing.
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
    """Return the Python packages that aiter's build imports and that this Python lacks."""
    jit = root / "aiter" / "jit"
    text = "".join(p.read_text(errors="replace") for p in (jit / "core.py", *sorted(jit.glob("utils/*.py"))))
    imported = [m for m in _MODULES if re.search(rf"^\s*(?:import|from)\s+{m}\b", text, re.MULTILINE)]
    return [m for m in imported if importlib.util.find_spec(m) is None]


def known_libraries(root: Path) -> frozenset[str]:
    """Return the names in aiter's table of modules. The set is empty if no table can be read."""
    try:
        return frozenset(json.loads((root / "aiter" / "jit" / "optCompilerConfig.json").read_text()))
    except (OSError, ValueError):
        return frozenset()


def locks(aiter_dir: Path, env: Mapping[str, str]) -> list[Path]:
    """Return the lock files of aiter's two builds that already exist.

    aiter waits for them for ever, without a message. They are plain files, which a killed build
    leaves behind, and nothing says whether a process still holds one.
    """
    own = aiter_dir.absolute() / "aiter" / "jit"
    build = Path(env.get("AITER_JIT_DIR") or own) / "build"
    found = (p for api in APIS for p in (build / f"lock_libmha_{api}", build / f"libmha_{api}" / "build" / "lock"))
    return [p for p in found if p.exists()]


def environment(ck_tile_bf16: int | None) -> Mapping[str, str]:
    """Return what aiter's build reads from the environment. The archs are not included, since every
    ROCm build gets them."""
    return {} if ck_tile_bf16 is None else {"CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT": str(ck_tile_bf16)}
