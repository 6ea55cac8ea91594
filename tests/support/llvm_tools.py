"""Finds this machine's compilers of LLVM IR, for tests that need one."""

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from support import REPOSITORY

HAS_LLVMLITE = importlib.util.find_spec("llvmlite") is not None


def find_clang() -> str | None:
    """Return the path of clang, or of its newest version if there are only versioned names. None if
    there is none."""
    names = [n for d in os.get_exec_path() if os.path.isdir(d) for n in os.listdir(d)]
    versions = sorted((int(m[1]) for n in names if (m := re.fullmatch(r"clang-(\d+)", n))), reverse=True)
    return next((p for n in ("clang", *(f"clang-{v}" for v in versions)) if (p := shutil.which(n))), None)


CLANG = find_clang()
needs_clang = pytest.mark.skipif(CLANG is None, reason="clang is not installed")
needs_llvmlite = pytest.mark.skipif(not HAS_LLVMLITE, reason="llvmlite is not installed (pip install 'lazyck[llvm]')")
COMPILERS = [pytest.param("clang", marks=needs_clang), pytest.param("lazyck-irc", marks=needs_llvmlite)]


def irc(where: Path) -> Path:
    """Make a lazyck-irc that runs this checkout, in a directory of its own below `where`."""
    program = where / "irc" / "lazyck-irc"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from lazyck.toolchains.irc import main\nmain()\n"
    )
    program.chmod(0o755)
    return program


def compiler(kind: str, where: Path) -> str:
    """Return the program that `kind` (one of `COMPILERS`) stands for."""
    return CLANG or "clang" if kind == "clang" else str(irc(where))
