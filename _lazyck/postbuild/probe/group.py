"""Describes blobs that one compile can probe, and how they are compiled for the host."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from _lazyck import proc
from _lazyck.abi import Role
from _lazyck.command import CompileCommand
from _lazyck.files import digest, encode
from _lazyck.toolchains import Toolchain, by_name
from _lazyck.toolchains.base import DEPEND_ROLES, SourceCompile, TextCompile
from _lazyck.toolchains.options import join

_ERROR = re.compile(r"\berror\b[^:\n]{0,12}:", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """Holds blobs that one compile can probe. `sources` maps each source to the commands that
    compile it. `key` is their key in the store (see `content_key`). The options `all_errors` keep
    their compiler from stopping after some number of errors."""

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
        """Compile for the host. With `is_settling`, use the optimization that the object's symbols
        depend on."""
        argv = self.toolchain.host_compile(self.of(source, output), is_settling=is_settling)
        return self.run((*argv, *extra))

    def of(self, source: Path | str, output: Path) -> SourceCompile:
        """Return the compile of a source of this group."""
        return SourceCompile(self.base, str(source), str(output), self.archs, self.cwd, self.env)

    def run(self, argv: Sequence[str]) -> proc.Result:
        """Run a command where and as the project would."""
        return proc.run(argv, cwd=self.cwd, env=self.env)

    def text_compile(self, source: Path, output: Path) -> TextCompile | None:
        """Return how to compile preprocessed text for the host, or None if that takes the
        toolchain's own driver."""
        return self.toolchain.text_compile(self.of(source, output), is_c=self.is_c)

    @property
    def is_c(self) -> bool:
        """Return whether the sources are C rather than C++."""
        return self.suffix == ".c" or ("-x", "c") in pairwise(self.base)

    def preprocess(self, source: Path, output: Path, text: str = "") -> proc.Result:
        """Preprocess `source`, into which `text` is written first if it is given."""
        if text:
            source.write_text(text, encoding="utf-8", errors="surrogateescape")
        return self.run(self.toolchain.host_preprocess_command(self.of(source, output)))


def first_error(said: str) -> str:
    """Return the line of a compiler's output that says what went wrong first."""
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
    """Return the key of what `compile_one` makes of a blob that has the key `content`."""
    words = writing_to(blob, Path("object.o"))
    return digest(*map(encode, (content, blob.call.cwd, *words)))
