"""Compile and link commands as frozen values; nothing here touches the file system."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Invocation:
    """One call of a compiler as the shim saw it, response files expanded.

    `argv[0]` is the real compiler's path and `argv` holds what must run in its place (so it may begin with
    several words, as `ccache g++` does; `prefix` counts them). `tool` is the shim's name (`hipcc`, `c++`),
    `toolchain` names a module of `lazyck.toolchains`. `env` holds the flag-carrying variables that were set.
    """

    tool: str
    toolchain: str
    cwd: str
    argv: tuple[str, ...]
    prefix: int
    env: tuple[tuple[str, str], ...]

    def path(self, name: str) -> str:
        """`name` as given on the command line, made absolute and free of `.` and `..` parts."""
        return os.path.normpath(os.path.join(self.cwd, name))


@dataclass(frozen=True)
class CompileCommand:
    """A deferred compile: an invocation with one source and one output, both absolute."""

    call: Invocation
    source: str
    output: str

    @property
    def stem(self) -> str:
        """The source's file name without its last suffix: the name by which users know the blob."""
        return os.path.basename(self.source).rpartition(".")[0] or os.path.basename(self.source)


@dataclass(frozen=True)
class LinkCommand:
    """An intercepted link: the invocation, and its output as an absolute path."""

    call: Invocation
    output: str
