"""Builds `lazyck-unit`, once for each state of its sources and each compiler.

All sources are compiled together, as the runtime's are (see `lazyck.runtime.build`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

from lazyck import abi, proc, waiting
from lazyck.files import digest, encode, write_if_different
from lazyck.runtime.build import canonical, together

SOURCES = Path(__file__).parent / "src"
NAME = "lazyck-unit"
_LEAN = ("-ffunction-sections", "-Wl,--gc-sections", "-s")
CXX_FLAGS = ("-std=c++17", "-O2", "-g0", "-Wall", "-Wextra", *_LEAN, "-pthread")


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Digest of all that decides what units come out: of the program's sources, and of names shared with Python."""
    parts = [abi.render_header().encode()]
    for path in sorted(SOURCES.iterdir()):
        parts += [encode(path.name), path.read_bytes()]
    return digest(*parts)


def build_program(store: Path, compiler: Sequence[str]) -> Path:
    """The program below `store`, for the machine that `compiler`, an argv prefix, makes code for. Safe when several
    processes do it at once. Raises `CommandError`, `ToolchainError`."""
    compiler = canonical(compiler)
    version = proc.run([*compiler, "--version"]).stdout
    stamp = digest(source_digest().encode(), version.encode(), *map(encode, (*compiler, *CXX_FLAGS)))
    made = store / "units" / stamp[:16] / NAME
    if made.is_file():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(made.parent / ".lock"):
        if not made.is_file():
            write_if_different(made.parent / "lazyck_abi.h", abi.render_header().encode())
            # what this state of the program makes may be other than what another makes of the same text
            itself = f'#pragma once\n#define LAZYCK_UNITS_DIGEST "{source_digest()}"\n'
            write_if_different(made.parent / "lazyck_units.h", itself.encode())
            temporary = made.with_suffix(".new")
            source = made.with_suffix(".cpp")
            write_if_different(source, together(SOURCES.glob("*.cpp")))
            argv = [*compiler, *CXX_FLAGS, "-iquote", str(SOURCES), "-iquote", str(made.parent), str(source)]
            hint = "lazyck-unit needs g++ 9 or clang++ 14, or a newer one; CXX names the compiler"
            with waiting.saying(f"compiling {NAME} with {os.path.basename(compiler[0])}, once for all builds"):
                proc.check(f"compiling {NAME}", [*argv, "-o", str(temporary)], hint=hint)
            temporary.replace(made)
    return made
