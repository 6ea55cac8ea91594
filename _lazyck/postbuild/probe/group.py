"""Describes blobs that one compile can probe, and how they are compiled for the host."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from _lazyck import proc
from _lazyck.command import CompileCommand
from _lazyck.toolchains import Toolchain
from _lazyck.toolchains.base import TextCompile

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
        """Compile for the host, with the optimization that symbols depend on if `is_settling`."""
        how = self.toolchain.host_settle if is_settling else self.toolchain.host_compile
        return self.run((*how(self.base, str(source), str(output), self.archs), *extra))

    def run(self, argv: Sequence[str]) -> proc.Result:
        """Run a command where and as the project would."""
        return proc.run(argv, cwd=self.cwd, env=self.env)

    def text_compile(self, source: Path, output: Path) -> TextCompile | None:
        """Return how to compile preprocessed text for the host, or None if that takes the
        toolchain's own driver."""
        return self.toolchain.text_compile(
            self.base, str(source), str(output), self.archs, is_c=self.is_c, cwd=self.cwd, env=self.env
        )

    @property
    def is_c(self) -> bool:
        """Return whether the sources are C rather than C++."""
        return self.suffix == ".c" or ("-x", "c") in pairwise(self.base)

    def preprocess(self, source: Path, output: Path, text: str = "") -> proc.Result:
        """Preprocess `source`, into which `text` is written first if it is given."""
        if text:
            source.write_text(text, encoding="utf-8", errors="surrogateescape")
        argv = self.toolchain.host_preprocess_command(
            self.base, str(source), str(output), self.archs, cwd=self.cwd, env=self.env
        )
        return self.run(argv)


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
