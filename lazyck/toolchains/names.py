"""Names of compilers as PATH and build scripts have them: `g++-12`, `clang++-19`, `x86_64-linux-gnu-g++`."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lazyck.toolchains.base import Toolchain

_FAMILIES = ("c++", "g++", "gcc", "cc", "clang++", "clang")
_FAMILY = "|".join(map(re.escape, _FAMILIES))
_NAME = re.compile(rf"(?P<target>[a-z0-9_]+-(?:[a-z0-9_.]+-){{1,2}})?(?P<family>{_FAMILY})(?:-[0-9][0-9.]*)?")


def host_names(env: Mapping[str, str]) -> list[str]:
    """The names on PATH that are those of a gcc or clang with its version or target."""
    found: set[str] = set()
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        try:
            found.update(name for name in os.listdir(directory or ".") if _NAME.fullmatch(name))
        except OSError:
            continue
    return sorted(found)


def is_foreign(name: str) -> bool:
    """Whether a compiler makes objects for another machine than this one, by its name."""
    match = _NAME.fullmatch(name)
    target = match["target"] if match else None
    if not target:
        return False
    return not re.fullmatch(rf"{platform.machine()}-(?:[a-z0-9_.]+-)?linux-(?:gnu|musl)-", target)


def is_c_driver(name: str) -> bool:
    """Whether a driver links without C++'s library."""
    match = _NAME.fullmatch(name)
    return match is not None and match["family"] in ("cc", "gcc", "clang")


def patterns(toolchain: Toolchain) -> tuple[list[str], list[str]]:
    """Shell patterns for the names of `toolchain`'s compilers: for this machine, for others."""
    own = list(toolchain.tools)
    foreign: list[str] = []
    if toolchain.name == "host":
        targets = [f"{platform.machine()}-*linux-gnu-", f"{platform.machine()}-*linux-musl-"]
        own += [target + family for target in targets for family in _FAMILIES]
        foreign = _versioned(f"*-*-{family}" for family in _FAMILIES)
    return _versioned(own), foreign


def _versioned(names: Iterable[str]) -> list[str]:
    return [pattern for name in names for pattern in (name, f"{name}-[0-9]*")]


def toolchain_of(compiler: str, toolchains: Sequence[Toolchain]) -> Toolchain:
    """The toolchain whose options a compiler takes, by its name; the last for an unknown one."""
    name = Path(compiler).name
    found = (t for t in toolchains if any(name == tool or name.startswith(f"{tool}-") for tool in t.tools))
    return next(found, toolchains[-1])
