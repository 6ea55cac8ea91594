"""Compile and link commands as frozen values. Nothing in this module touches the file system."""

import os
from dataclasses import dataclass

from lazyck.files import absolute


@dataclass(frozen=True)
class Invocation:
    """One call of a compiler as the shim `tool` (`hipcc`, `c++`) saw it, with response files
    expanded. `argv` is the command that runs in its place; its first `prefix` words are the real
    compiler, such as `ccache g++`. `toolchain` names a module of `lazyck.toolchains`, and `env`
    holds PATH and the variables with flags that were set."""

    tool: str
    toolchain: str
    cwd: str
    argv: tuple[str, ...]
    prefix: int
    env: tuple[tuple[str, str], ...]

    def path(self, name: str) -> str:
        """Return `name`, a path from the command line, as an absolute path without `.` and `..`."""
        return absolute(name, self.cwd)


@dataclass(frozen=True)
class CompileCommand:
    """A deferred compile: an invocation with one source and one output, both as absolute paths."""

    call: Invocation
    source: str
    output: str
    content: str = ""  # what the source was then (see formats/record.py)

    def __hash__(self) -> int:
        return hash((self.source, self.output))  # which tell nearly all apart: `call` is long

    @property
    def stem(self) -> str:
        """The source's file name without its last suffix, by which users know the blob."""
        return os.path.basename(self.source).rpartition(".")[0] or os.path.basename(self.source)


@dataclass(frozen=True)
class LinkCommand:
    """An intercepted link: the invocation, and its output as an absolute path."""

    call: Invocation
    output: str
