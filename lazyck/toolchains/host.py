"""The host's C and C++ compilers: gcc and clang under whatever name PATH has them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from lazyck.toolchains import lookup
from lazyck.toolchains.base import Found
from lazyck.toolchains.gnu import SOURCES, GnuToolchain

_VERSIONED = re.compile(
    rf"(?:{platform.machine()}-(?:\w+-)?linux-gnu-)?(?:g\+\+|gcc|c\+\+|clang\+\+|clang)(?:-\d+(?:\.\d+)*)?"
)


class HostToolchain(GnuToolchain):
    """`c++` and its kin; a blob is plain C++ and has no arch but the machine's."""

    name = "host"
    tools = ("c++", "g++", "clang++", "cc", "gcc", "clang", "amdclang++", "amdclang")
    compiler_env = ("CXX", "CC")
    # clang compiles HIP by itself: such a blob follows rocm's recipes
    languages: ClassVar[Mapping[str, str]] = {**GnuToolchain.languages, "hip": "rocm"}
    source_suffixes = tuple(s for s in SOURCES if s != ".cu")
    foreign_suffixes: ClassVar[Mapping[str, str]] = {".hip": "rocm"}

    def find(self, env: Mapping[str, str]) -> Found | None:
        words = lookup.without_launchers(lookup.resolve("CXX", env))
        if not words:
            path = next((p for p in (lookup.which(t, env) for t in self.tools[:3]) if p), None)
            words = (path,) if path else ()
        return Found(self, "", words) if words else None

    def versioned(self, env: Mapping[str, str]) -> list[str]:
        """The names under which PATH has the same compilers by version and by target: `g++-12`, `clang++-19`,
        `x86_64-linux-gnu-gcc` (which Debian's Python calls)."""
        names: set[str] = set()
        for directory in map(Path, env.get("PATH", os.defpath).split(os.pathsep)):
            if directory.is_dir():
                names.update(e for e in os.listdir(directory) if _VERSIONED.fullmatch(e))
        return sorted(names)

    def searched(self) -> str:
        return "CXX, and c++, g++, clang++ on PATH"

    def default_arch(self) -> str:
        return platform.machine()


HOST = HostToolchain()
