"""Reads what the real objects and archives of a link define and leave undefined."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from lazyck import proc
from lazyck.errors import ToolchainError
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.elf import SymbolNames
from lazyck.postbuild.objects.inputs import LinkInputs
from lazyck.toolchains import by_name

_START_FILE = re.compile(r"(?:[gMrS]?crt[1in]|rcrt1|crt(?:begin|end)[ST]?|crtfastmath|clang_rt\.crt\w+(?:-\w+)?)\.o")
_OF_NVCC = re.compile(r"(?:tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_)?(.*)\.cudafe1\.\w+")


@dataclass(frozen=True)
class LinkSymbols:
    objects: SymbolNames  # of the real objects
    members: SymbolNames  # of the members of archives, which are linked only where they are needed
    unread: str = ""  # the path of an LTO object that cannot be read
    files: Mapping[str, SymbolNames] = field(default_factory=dict)  # of each file
    # of the members of each archive from which the link takes only what it needs
    optional: Mapping[str, Sequence[SymbolNames]] = field(default_factory=dict)


def read_symbols(inputs: LinkInputs, reader: "SymbolReader") -> LinkSymbols:
    """Read all objects and archives of a link. Raises `LazyckError` for damaged ones.

    Members of archives count for what they leave undefined, but not for what they define: an object
    always wins over an archive's member. A member that is not pulled in costs no more than a
    needless stub. Archives that blobs link themselves are left out, because they do not need the
    main library. The definitions of a compiler's start files are left out where a link names them
    (libtool's do), because each library has its own `__dso_handle`.
    """
    own = {name for t in {b.call.toolchain for b in inputs.blobs} for name in by_name(t).own_archives}
    objects = {path: reader.object(path) for path in inputs.objects}
    members = {path: reader.archive(path) for path in inputs.archives if os.path.basename(path) not in own}
    for path in objects:
        if _START_FILE.fullmatch(os.path.basename(path)) and (found := objects[path]):
            objects[path] = SymbolNames(undefined=found.undefined, asked_for=found.asked_for)
    files = {**objects, **{path: None if names is None else together(names) for path, names in members.items()}}
    unread = [path for path, names in files.items() if names is None]
    known = {path: names for path, names in files.items() if names is not None}
    optional = {path: names for path, names in members.items() if names and path not in inputs.whole}
    every = together(known[path] for path in members if path in known)
    return LinkSymbols(together(objects.values()), every, unread[0] if unread else "", known, optional)


def together(parts: Iterable[SymbolNames | None]) -> SymbolNames:
    """Return the symbols of several objects as those of one. What is None has none."""
    known = [p for p in parts if p is not None]
    sets = [f.name for f in fields(SymbolNames) if not isinstance(f.default, bool)]
    joined: dict[str, Any] = {name: frozenset[str]().union(*(getattr(p, name) for p in known)) for name in sets}
    return SymbolNames(**joined, has_startup=any(p.has_startup for p in known))


class SymbolReader:
    """Reads objects. Those of LTO take an `nm`: GNU's with the link driver's plugin, or LLVM's."""

    def __init__(self, driver: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        self._driver, self._cwd, self._env = driver, cwd, env

    def object(self, path: str) -> SymbolNames | None:
        """Return the names of an object, or None for an LTO object that no tool can read."""
        found = elf.read_object(path)
        return self._read_lto(path, [found]) if found.is_lto else found

    def archive(self, path: str) -> list[SymbolNames] | None:
        """Return the names of each of an archive's members, without deferred ones. If some are LTO
        objects, return the names of all together, or None if they cannot be read."""
        found = [member for _, member in elf.read_archive(path) if not member.is_deferred]
        if any(m.is_lto for m in found):
            read = self._read_lto(path, found)
            return None if read is None else [read]
        return found

    def _read_lto(self, path: str, found: Sequence[SymbolNames]) -> SymbolNames | None:
        tool = self._nm if all(m.defined for m in found) else self._llvm_nm
        try:
            shown = proc.run([*tool, "-P", path], env=self._env)
        except ToolchainError:
            return None
        read = parse_nm(shown.stdout)
        return read if shown.status == 0 and (read.defined or read.undefined) else None

    @cached_property
    def _llvm_nm(self) -> tuple[str, ...]:
        return (self._ask("-print-prog-name=llvm-nm") or "llvm-nm",)

    @cached_property
    def _nm(self) -> tuple[str, ...]:
        plugin = self._ask("-print-file-name=liblto_plugin.so")
        options = ("--plugin", plugin) if os.path.isabs(plugin) else ()
        return self._ask("-print-prog-name=nm") or "nm", *options

    def _ask(self, question: str) -> str:
        shown = proc.run([*self._driver, question], cwd=self._cwd, env=self._env)
        return shown.stdout.strip() if shown.status == 0 else ""


def source_name(path: str) -> str:
    """Return what to call an object or archive: the source of an object that says it."""
    if elf.kind(path) == "object":
        sources = [s.name for s in elf.open_image(path).symbols() if s.type == "FILE"]
        if sources:
            made = _OF_NVCC.fullmatch(sources[0])
            return f"{made[1]}.cu" if made else os.path.basename(sources[0])
    return os.path.basename(path)


def parse_nm(text: str) -> SymbolNames:
    rows: Sequence[list[str]] = [line.split() for line in text.splitlines() if not line.endswith(":")]
    kinds = [(row[0], row[1]) for row in rows if len(row) > 1 and len(row[1]) == 1]
    undefined = frozenset(name for name, kind in kinds if kind in "Uwv")
    defined = frozenset(name for name, kind in kinds if kind not in "Uwv" and (kind.isupper() or kind in "ui"))
    strong = frozenset(name for name, kind in kinds if name in defined and kind not in "WVu")
    asked_for = frozenset(name for name, kind in kinds if kind == "U")
    resolved, unique = (frozenset(name for name, each in kinds if each == kind) for kind in "iu")
    # There may be code that runs at load.
    functions = frozenset(name for name, kind in kinds if kind in "TWi") & defined
    return SymbolNames(
        defined,
        undefined,
        strong,
        asked_for=asked_for,
        functions=functions,
        unique=unique,
        has_startup=True,
        resolved=resolved,
    )
