"""Name a compiler, as keys of entries do: by its own words and by the programs that it starts.

The runtime does so, too, on the machine that compiles (runtime/src/store/compilers.cpp).
tests/runtime/test_compiler_identity.py compares the two.
"""

import contextlib
import hashlib
import os
import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from lazyck import proc
from lazyck.errors import ToolchainError

# Lines of `--version` that tell places or dates rather than a compiler.
_PLACES = re.compile(r"^(InstalledDir|Configured with|COLLECT_|Configuration file|Built on)|(^|[\s:=])/\S", re.I)
_KINDS = (
    ("clang", re.compile(r"clang version (\d[\w.]*)")),
    ("nvcc", re.compile(r"release [\d.]+, V(\d[\w.]*)")),
    ("gcc", re.compile(r"^\S*(?:gcc|g\+\+|cc|c\+\+)\S* \(.*\) (\d[\w.]*)", re.M)),
    ("hip", re.compile(r"HIP version: (\d[\w.]*)")),
    ("llvm", re.compile(r"LLVM version (\d[\w.]*)")),
)
_MOST_READ = 1 << 20  # bytes
_BUILD_ID = b".note.gnu.build-id"


def compiler_identity(
    compiler: Sequence[str], env: Mapping[str, str] | None = None, programs: Sequence[str] = ()
) -> str:
    """Return a short readable name of a compiler with a digest of its `--version` output and of
    what tells each of its `programs` from others. It contains no path.

    The output may depend on `env`, which can decide what a driver runs. Raises `ToolchainError` if
    the compiler does not say its version.
    """
    marks = tuple(mark_of(program, env) for program in programs)
    return identity_of(version_of(tuple(compiler), None if env is None else tuple(sorted(env.items()))), marks)


@lru_cache(maxsize=64)
def version_of(compiler: tuple[str, ...], env: tuple[tuple[str, str], ...] | None = None) -> str:
    """Return what `--version` prints. Raises `ToolchainError` as `compiler_identity`."""
    shown = proc.run([*compiler, "--version"], env=None if env is None else dict(env))
    if shown.status != 0:
        raise ToolchainError(
            f"{compiler[0]}: `--version` ended with status {shown.status}: {shown.stderr.strip()[-500:]}",
            "check that this compiler works",
        )
    return shown.stdout


def identity_of(version_text: str, marks: Sequence[str] = ()) -> str:
    lines = [line.strip() for line in version_text.splitlines()]
    kept = "\n".join(line for line in lines if line and not _PLACES.search(line))
    kind, match = next(((kind, m) for kind, pattern in _KINDS if (m := pattern.search(kept))), ("cc", None))
    if kind == "gcc":
        kept = re.sub(r"^\S+ \(", "gcc (", kept)  # g++ and c++ are names of one compiler
    all_marks = "".join(f"\n{mark}" for mark in marks)
    return f"{kind}{match[1] if match else ''}-{hashlib.sha256((kept + all_marks).encode()).hexdigest()[:12]}"


def mark_of(program: str, env: Mapping[str, str] | None) -> str:
    """Return what tells a program or another file of a compiler from others, wherever it is: the
    build id that its linker gave it; else its SHA-256, without the line that names a script's
    interpreter; or the size of a large file. The result is `-` if it is not there."""
    path = program if "/" in program else proc.find_program(program, env) or ""
    with contextlib.suppress(OSError):
        return _mark_of_file(path, tuple(os.stat(path))[:9])
    return "-"


@lru_cache(maxsize=256)
def _mark_of_file(path: str, _status: tuple[float, ...]) -> str:
    with Path(path).open("rb") as f:
        if build_id := _build_id(f):
            return build_id
        size = f.seek(0, os.SEEK_END)
        if size > _MOST_READ:
            return str(size)
        f.seek(0)
        data = f.read()
    return hashlib.sha256(data.partition(b"\n")[2] if data.startswith(b"#!") else data).hexdigest()


def _build_id(f: BinaryIO) -> str:
    """Return the build id of an ELF file of 64 bits, or an empty string."""

    def at(offset: int, length: int) -> bytes:
        f.seek(offset)
        return f.read(length)

    head = at(0, 64)
    if not head.startswith(b"\x7fELF\x02\x01") or len(head) < 64:
        return ""
    (table,) = struct.unpack_from("<Q", head, 40)
    count, names = struct.unpack_from("<2H", head, 60)
    rows = at(table, 64 * count)
    sections = list(struct.iter_unpack("<2I4Q2I2Q", rows[: len(rows) // 64 * 64]))
    texts = at(*sections[names][4:6]) if names < len(sections) else b""
    for section in sections:
        if texts[section[0] :].startswith(_BUILD_ID + b"\0"):
            return at(*section[4:6]).hex()
    return ""
