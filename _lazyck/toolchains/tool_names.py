"""Recognise names of compilers on PATH and in build scripts: `g++-12`, `clang++-19`,
`x86_64-linux-gnu-g++`."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from _lazyck import proc

if TYPE_CHECKING:  # toolchains ask these names about compilers
    from _lazyck.toolchains.base import Toolchain

_FAMILIES = ("c++", "g++", "gcc", "cc", "clang++", "clang")
_FAMILY = "|".join(map(re.escape, _FAMILIES))
_NAME = re.compile(rf"(?P<target>[a-z0-9_]+-(?:[a-z0-9_.]+-){{1,2}})?(?P<family>{_FAMILY})(?:-[0-9][0-9.]*)?")


def host_names(env: Mapping[str, str]) -> list[str]:
    """Return the names on PATH that are those of a gcc or clang, also with a version or target."""
    found: set[str] = set()
    for directory in proc.search_path(env):
        try:
            found.update(name for name in os.listdir(directory) if is_compiler(name))
        except OSError:
            continue
    return sorted(found)


def target_of(name: str) -> str:
    """Return the target triple that a compiler's name begins with, or an empty string if it has
    none."""
    match = _NAME.fullmatch(name)
    return (match["target"] or "").rstrip("-") if match else ""


def is_compiler(name: str) -> bool:
    """Return whether a name is that of a gcc or clang, also with a version or target."""
    return _NAME.fullmatch(name) is not None


def is_c_driver(name: str) -> bool:
    """Return whether a driver links without the C++ library."""
    match = _NAME.fullmatch(name)
    return match is not None and match["family"] in ("cc", "gcc", "clang")


def patterns(toolchain: "Toolchain") -> tuple[list[str], list[str]]:
    """Return shell patterns for the names of `toolchain`'s compilers: those for this machine, and
    those with a target before the name."""
    prefixed = _versioned(f"*-*-{family}" for family in _FAMILIES) if toolchain.name == "host" else []
    return _versioned(toolchain.tools), prefixed


def _versioned(names: Iterable[str]) -> list[str]:
    return [pattern for name in names for pattern in (name, f"{name}-[0-9]*")]


def toolchain_of(compiler: str, toolchains: "Sequence[Toolchain]") -> "Toolchain":
    """Return the toolchain whose options a compiler takes, judged by its name, or the last one if
    it is unknown."""
    name = Path(compiler).name
    found = (t for t in toolchains if any(name == tool or name.startswith(f"{tool}-") for tool in t.tools))
    return next(found, toolchains[-1])
