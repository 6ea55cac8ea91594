"""Makes host units: the objects of sources whose kernels are compiled one by one, when they are
first used.

A host unit has all of its source's host code, compiled by the project's own compiler, and registers
every kernel and variable as usual. In place of device code it has its name. `lazyck-unit` makes it
from the steps that the compiler itself says it would take. If these are not the known ones, the
source is compiled as a whole.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from _lazyck import abi, proc
from _lazyck.command import CompileCommand
from _lazyck.files import digest, encode
from _lazyck.postbuild.bundle import Contents
from _lazyck.postbuild.cxx import demangle
from _lazyck.postbuild.objects import elf
from _lazyck.postbuild.probe.group import first_error, writing_to
from _lazyck.postbuild.reasons import Kind, Reason
from _lazyck.postbuild.store import Store
from _lazyck.toolchains import by_name
from _lazyck.toolchains.options import join

_OWN_NAME = re.compile(f"{abi.MODULE_ID}[0-9a-f]{{{abi.MODULE_ID_DIGITS}}}")
BY_KERNEL = Reason(Kind.BY_KERNEL)  # as the build asks for


@dataclass(frozen=True)
class Program:
    """Describes `lazyck-unit`: where it is, and a digest of what it does."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Kernel:
    """Describes a kernel by its `symbol` in device code. `line` says all that compiling it takes
    (see units/src/units.h)."""

    symbol: str
    line: str


@dataclass(frozen=True)
class HostUnit:
    """Describes what the host unit of `blob` registers under `name`, by names as device code has
    them. `files` are all files that its source reads, as absolute paths. `whole` is the line that
    stands for all kernels."""

    blob: CompileCommand
    name: str
    kernels: tuple[Kernel, ...]
    whole: str
    files: frozenset[str]


def name_of(blob: CompileCommand) -> str:
    """Return the name under which a host unit registers its kernels. Each compile has its own."""
    return digest(*map(encode, (blob.source, blob.output, blob.call.cwd, *blob.call.argv)))[:16]


def read(blob: CompileCommand, made: Path) -> HostUnit | None:
    """Return the host unit that the object `made` is, or None if it is an ordinary object."""
    section = elf.read_section(made, abi.KERNELS_SECTION)
    if section is None:
        return None
    whole = ""
    kernels: list[tuple[str, str]] = []
    state: list[str] = []
    files: set[str] = set()
    for line in os.fsdecode(section).splitlines():
        kind, _, rest = line.partition("\t")
        if kind == "whole":
            whole = rest
        elif kind == "kernel":
            line = device_name(rest)
            kernels.append((line.partition("\t")[0], line))
        elif kind == "variable":
            state.append(device_name(rest))
        elif kind == "file":
            files.add(blob.call.path(rest))
    tail = "".join(f"\t{name}" for name in state)
    found = tuple(Kernel(symbol, line + tail) for symbol, line in kernels)
    return HostUnit(blob, name_of(blob), found, whole, frozenset(files - {blob.source}))


def device_name(text: str) -> str:
    """Return names as device code has them: without what makes a host unit's names unique."""
    return _OWN_NAME.sub(abi.MODULE_ID + "0" * abi.MODULE_ID_DIGITS, text)


def can_be(blob: CompileCommand) -> bool:
    """Return whether there may be a host unit of `blob`. Only device code has one."""
    toolchain = by_name(blob.call.toolchain)
    return bool(toolchain.entry_verb) and os.path.splitext(blob.source)[1] in toolchain.unit_suffixes


class HostUnits:
    """Makes the host units of one link. Those of earlier links are found in `store`, by the
    contents of the files that they read. `program` is None if no host units are to be made."""

    def __init__(self, store: Store, program: Program | None, env: Mapping[str, str]) -> None:
        self._store, self._program, self._env = store, program, env
        self._contents = Contents()
        self.refused: dict[CompileCommand, Reason] = {}  # blobs that have no host unit, and why

    def make(self, blob: CompileCommand, target: Path) -> HostUnit | None:
        """Make the host unit of `blob` at `target`. Return None if it has none (see `refused`)."""
        if self._program is None or not can_be(blob) or blob in self.refused:
            return None
        if self._take(blob, target):
            return read(blob, target)
        toolchain = by_name(blob.call.toolchain)
        written = writing_to(blob, target)
        items = toolchain.table.split(written[blob.call.prefix :])
        named = (i.words[0] for i in items if not i.name and blob.call.path(i.words[0]) == blob.source)
        words = [*written[: blob.call.prefix], *join(i for i in items if i.name not in toolchain.hinders_units)]
        source = next(named, blob.source)
        argv = [str(self._program.path), toolchain.unit_verbs[0], name_of(blob), source, str(target), "--", *words]
        env = proc.anchored(toolchain.tool_env(blob, self._env), blob.call.cwd)
        result = proc.run(argv, cwd=blob.call.cwd, env=env)
        unit = read(blob, target) if result.status == 0 else None
        if unit is None:
            error = demangle.readable(first_error(result.stdout + result.stderr))
            self.refused[blob] = Reason(Kind.NOT_BY_KERNEL, error)
            return None
        self._keep(unit, target)
        return unit

    def _group(self, blob: CompileCommand) -> str:
        call = blob.call
        toolchain = by_name(call.toolchain)
        variables = sorted(toolchain.tool_env(blob, self._env).items())
        own = [f"{k}={v}" for k, v in variables if k in toolchain.flag_env]
        compiler = proc.find_program(call.argv[0]) or call.argv[0]
        changed = Path(compiler).stat().st_mtime_ns if os.path.isfile(compiler) else 0
        made_by = (self._program.digest if self._program else "", f"{os.path.realpath(compiler)} {changed}")
        return digest(*map(encode, (*made_by, call.cwd, blob.source, *call.argv, "", *own)))

    def _key(self, group: str, files: frozenset[str]) -> str:
        try:
            contents = [part for f in sorted(files) for part in (f, self._contents.of_file(f))]
        except OSError:
            return ""
        return digest(*map(encode, (group, *contents)))

    def _take(self, blob: CompileCommand, target: Path) -> bool:
        group = self._group(blob)
        files = self._store.answers(f"{group}-unit").get("files")
        if not isinstance(files, list):
            return False
        key = self._key(group, frozenset(files))
        return bool(key) and self._store.take_object(key, target)

    def _keep(self, unit: HostUnit, made: Path) -> None:
        group, files = self._group(unit.blob), unit.files | {unit.blob.source}
        if key := self._key(group, files):
            self._store.keep_answers(f"{group}-unit", {"files": sorted(files)})
            self._store.keep_object(key, made)
