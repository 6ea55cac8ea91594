"""Build `lazyck-unit` once for each state of its sources and each compiler.

All sources are compiled as one file, as the runtime's are (see `lazyck.runtime.builder`).
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

from lazyck import proc, waiting
from lazyck.files import digest, encode, write_if_different
from lazyck.formats.c_header import render_header
from lazyck.runtime import shipped
from lazyck.runtime.builder import canonical, together

SOURCES = Path(__file__).parent / "src"
NAME = "lazyck-unit"
OBJECT = f"{NAME}.o"
CXX_FLAGS = ("-std=c++17", "-O2", "-g0", "-fPIC", "-Wall", "-Wextra", "-ffunction-sections", "-pthread")
_HINT = "lazyck-unit needs g++ 9 or clang++ 14, or a newer one; CXX names the compiler"
LINK_FLAGS = ("-pthread", "-Wl,--gc-sections", "-s")


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Return the digest of everything that decides what a unit contains: the program's sources, and
    the names that it shares with Python."""
    parts = [render_header().encode()]
    for path in sorted(SOURCES.iterdir()):
        parts += [encode(path.name), path.read_bytes()]
    return digest(*parts)


def build_program(store: Path, compiler: Sequence[str]) -> Path:
    """Build the program below `store` for the machine that `compiler` (an argv prefix) targets, and
    return its path. Several processes may call this at once. Raises `CommandError` and
    `ToolchainError`."""
    compiler = canonical(compiler)
    made = _directory(store, compiler) / NAME
    if made.is_file():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(made.parent / ".lock"):
        if not made.is_file():
            temporary = made.with_suffix(".new")
            lead, tail = [*compiler, "-o", str(temporary)], LINK_FLAGS
            ready = shipped.find(compiler, OBJECT, object_key())
            if ready is None or proc.run([*lead, str(ready), *tail]).status != 0:
                own = _compile(made.parent, compiler)
                proc.check(f"linking {NAME}", [*lead, str(own), *tail], hint=_HINT)
            temporary.replace(made)
    return made


def object_key() -> str:
    return source_digest()[:16]


def build_object(store: Path, compiler: Sequence[str]) -> Path:
    """Build below `store` what a wheel ships. Raises `CommandError` and `ToolchainError`."""
    compiler = canonical(compiler)
    directory = _directory(store, compiler)
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / ".lock"):
        return _compile(directory, compiler)


def _directory(store: Path, compiler: Sequence[str]) -> Path:
    version = proc.run([*compiler, "--version"]).stdout
    stamp = digest(source_digest().encode(), version.encode(), *map(encode, (*compiler, *CXX_FLAGS, *LINK_FLAGS)))
    return store / "units" / stamp[:16]


def _compile(directory: Path, compiler: Sequence[str]) -> Path:
    made = directory / OBJECT
    if made.is_file():
        return made
    write_if_different(directory / "lazyck_abi.h", render_header().encode())
    # The program puts the digest of its own sources into what it asks for: another state of the
    # sources may make another unit of the same text.
    itself = f'#pragma once\n#define LAZYCK_UNITS_DIGEST "{source_digest()}"\n'
    write_if_different(directory / "lazyck_units.h", itself.encode())
    temporary = made.with_suffix(".new.o")
    source = made.with_suffix(".cpp")
    write_if_different(source, together(SOURCES, SOURCES.glob("*.cpp")))
    argv = [*compiler, *CXX_FLAGS, "-iquote", str(SOURCES), "-iquote", str(directory), "-c", str(source)]
    with waiting.saying(f"compiling {NAME} with {os.path.basename(compiler[0])}, once for all builds"):
        proc.check(f"compiling {NAME}", [*argv, "-o", str(temporary)], hint=_HINT)
    temporary.replace(made)
    return made
