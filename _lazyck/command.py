"""Compile and link commands as frozen values. Nothing in this module touches the file system."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Invocation:
    """One call of a compiler as the shim saw it, with response files expanded.

    `argv` is the command that runs in its place and starts with the path of the real compiler. It
    may begin with several words, as `ccache g++` does: `prefix` counts them. `tool` is the name of
    the shim (`hipcc`, `c++`), and `toolchain` names a module of `_lazyck.toolchains`. `env` holds
    those variables with flags that were set.
    """

    tool: str
    toolchain: str
    cwd: str
    argv: tuple[str, ...]
    prefix: int
    env: tuple[tuple[str, str], ...]

    def path(self, name: str) -> str:
        """Return `name`, a path from the command line, as an absolute path without `.` and `..`."""
        return os.path.normpath(os.path.join(self.cwd, name))


@dataclass(frozen=True)
class CompileCommand:
    """A deferred compile: an invocation with one source and one output, both as absolute paths."""

    call: Invocation
    source: str
    output: str

    @property
    def stem(self) -> str:
        """The source's file name without its last suffix, by which users know the blob."""
        return os.path.basename(self.source).rpartition(".")[0] or os.path.basename(self.source)


@dataclass(frozen=True)
class LinkCommand:
    """An intercepted link: the invocation, and its output as an absolute path."""

    call: Invocation
    output: str
