"""Describes blobs that one compile can probe, how they are compiled, and what is known of a blob:
its symbols, or why it must be eager."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from lazyck import proc
from lazyck.abi import Role
from lazyck.files import digest, encode
from lazyck.postbuild.reasons import Reason
from lazyck.toolchains import Toolchain, by_name
from lazyck.toolchains.base import DEPEND_ROLES, SourceCompile, TextCompile
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.options import join

_ERROR = re.compile(r"\berror\b[^:\n]{0,12}:", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """Holds blobs that one compile can probe. `sources` maps each source to the commands that
    compile it. `key` is their key in the probe cache (see `content_key`). The options
    `all_errors` keep their compiler from stopping after some number of errors."""

    toolchain: Toolchain
    base: tuple[str, ...]
    archs: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    suffix: str
    sources: Mapping[str, tuple[CompileCommand, ...]]
    key: str = ""
    all_errors: tuple[str, ...] = ()

    def compile(
        self, source: Path | str, output: Path, extra: Sequence[str] = (), *, is_settling: bool = False
    ) -> proc.Result:
        """Compile for the host; `is_settling` sets the optimization that symbols depend on."""
        argv = self.toolchain.host_compile(self.of(source, output), is_settling=is_settling)
        return self.run((*argv, *extra))

    def of(self, source: Path | str, output: Path) -> SourceCompile:
        return SourceCompile(self.base, str(source), str(output), self.archs, self.cwd, self.env)

    def run(self, argv: Sequence[str]) -> proc.Result:
        return proc.run(argv, cwd=self.cwd, env=self.env)

    def text_compile(self, source: Path, output: Path) -> TextCompile | None:
        """Return how to compile preprocessed text, or None if only the toolchain's driver can."""
        return self.toolchain.text_compile(self.of(source, output), is_c=self.is_c)

    @cached_property
    def is_c(self) -> bool:
        return self.toolchain.is_c(next(iter(self.sources.values()))[0])

    def preprocess(self, source: Path, output: Path, text: str = "") -> proc.Result:
        """Preprocess `source`, into which `text` is written first if it is given."""
        if text:
            source.write_text(text, encoding="utf-8", errors="surrogateescape")
        return self.run(self.toolchain.host_preprocess_command(self.of(source, output)))


def first_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)] or [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no message"])[0][:500]


def rule_files(depfile: Path, cwd: str) -> set[str]:
    """Return the prerequisites of the make rule in `depfile`, relative ones joined to `cwd`."""
    text = depfile.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ")
    words = re.findall(r"(?:\\.|\S)+", text.partition(": ")[2])
    return {os.path.join(cwd, re.sub(r"\\(.)", r"\1", w).replace("$$", "$")) for w in words}


def writing_to(blob: CompileCommand, target: Path) -> list[str]:
    """Return the project's own command for `blob`, with another output. It writes no depfile: the
    shim has written one, and this command's would name another target."""
    call = blob.call
    items = by_name(call.toolchain).table.split(call.argv[call.prefix :])
    kept = join(i for i in items if i.role is not Role.OUTPUT and i.role not in DEPEND_ROLES)
    return [*call.argv[: call.prefix], *kept, "-o", str(target)]


def compile_one(blob: CompileCommand, target: Path, env: Mapping[str, str], more: Sequence[str] = ()) -> proc.Result:
    """Make the object of `blob` by the project's own command, with the options `more`."""
    tool_env = by_name(blob.call.toolchain).tool_env(blob, env)
    return proc.run([*writing_to(blob, target), *more], cwd=blob.call.cwd, env=proc.anchored(tool_env, blob.call.cwd))


def object_key(blob: CompileCommand, content: str) -> str:
    words = writing_to(blob, Path("object.o"))
    return digest(*map(encode, (content, blob.call.cwd, *words)))


@dataclass(frozen=True)
class Answer:
    """Holds what is known of a source. If anything needs one of the symbols that no slot can stand
    for (`unreachable`, `kernels`), the blob must be compiled eagerly.

    Compilers leave out what is `weak` (inline functions, implicit instantiations) if nothing in the
    blob uses it, and others who use it have it too, so that it counts only where it is needed. What
    is `merged` (explicit instantiations, `__attribute__((weak))`) is always there. `weak_data` are
    variables of inline functions and templates that the blob has a copy of, as far as a compile of
    its own told. A program has one copy.
    """

    symbols: tuple[str, ...] = ()  # the functions that it defines
    unreachable: tuple[str, ...] = ()  # hidden symbols
    compiled: str = ""  # why the blob was compiled by itself, if the group's probe did not answer everything
    weak: frozenset[str] = frozenset()  # of `symbols` and `kernels`
    needs: frozenset[str] | None = None  # what it leaves undefined, or None if only its own compile could tell
    eager: Reason | None = None  # why to compile it ahead of time
    merged: frozenset[str] = frozenset()  # those of `symbols` that give way to a definition elsewhere
    weak_data: frozenset[str] = frozenset()
    private: frozenset[str] = frozenset()  # those of `symbols` that the build's options hide from other libraries
    kernels: tuple[str, ...] = ()  # the handles of its kernels, hidden or not
    aliases: tuple[str, ...] = ()  # functions, each followed by the function of which it is another name
    by_itself: bool = False  # whether the project's own command made the judged object, as good as an eager one

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON for the cache, without fields that have their default value."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        if self.eager:
            said["eager"] = self.eager.as_line()
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in said.items()}


@dataclass(frozen=True)
class Probed(Answer):
    """Describes a blob whose symbols are known. `headers` are all files besides its source that
    compiling it reads, as absolute paths."""

    blob: CompileCommand = field(kw_only=True)
    headers: frozenset[str] = field(kw_only=True)

    @property
    def firm(self) -> frozenset[str]:
        """Return those of `symbols` that give way to nothing."""
        return frozenset(self.symbols) - self.weak - self.merged


_TYPES: dict[str, Callable[[Any], Any]] = {
    f.name: frozenset if f.default is None else type(f.default) for f in fields(Answer)
} | {"eager": Reason.of_line}


def from_json(found: Any) -> Answer | None:
    """Return the answer that `as_json` encoded, or None for anything else."""
    try:
        return Answer(**{name: _TYPES[name](value) for name, value in found.items()})
    except (AttributeError, KeyError, TypeError):
        return None
