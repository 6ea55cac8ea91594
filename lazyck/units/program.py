"""Builds `lazyck-unit`, once for each state of its sources and each compiler."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from lazyck.runtime import builder

SOURCES = Path(__file__).parent / "src"
NAME = "lazyck-unit"
OBJECT = f"{NAME}.o"


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Return the digest of everything that decides what a unit contains: the program's sources, and
    the names that it shares with Python."""
    return builder.source_digest(SOURCES)


def build_object(store: Path, compiler: Sequence[str]) -> Path:
    """Compile the program's object in `store`, or find it there or in this wheel. Raises
    `CommandError` and `ToolchainError`."""
    # The program puts the digest of its own sources into what it asks for: another state of the
    # sources may make another unit of the same text.
    header = f'#define LAZYCK_UNITS_DIGEST "{source_digest()}"\n'
    return builder.compile_program(store, compiler, SOURCES, NAME, header)


def objects_for_wheels(store: Path, compiler: Sequence[str]) -> dict[str, tuple[str, Path]]:
    """Return keys and objects, by name, for `shipped.write`: this program's and the runtime's.
    Raises as `build_object` does."""
    made = build_object(store, compiler)
    return builder.objects_for_wheels(store, compiler) | {OBJECT: (made.parent.name, made)}


def build_program(store: Path, compiler: Sequence[str]) -> Path:
    """Build the program in `store` for the machine that `compiler` (an argv prefix) targets, and
    return its path. Several processes may call this at once. Raises as `build_object` does."""
    made = build_object(store, compiler)
    program = made.with_suffix("")
    return program if program.is_file() else builder.link_program(program, compiler, [made], "-s")
