"""Reads what a linked library offers to whoever loads it: dynamic symbols with their versions, and
the dynamic section."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from _lazyck import abi
from _lazyck.errors import FormatError
from _lazyck.manifest import Manifest, decode
from _lazyck.postbuild.objects import elf

_DYNAMIC = struct.Struct("<qQ")
_VERDEF = struct.Struct("<HHHHIII")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_SHT_DYNAMIC, _SHT_VERDEF, _SHT_VERNEED, _SHT_VERSYM = 6, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_TEXTS = {1: "NEEDED", 14: "SONAME", 15: "RPATH", 29: "RUNPATH", 0x7FFFFFFD: "AUXILIARY", 0x7FFFFFFF: "FILTER"}
_CODE = {12: "INIT", 13: "FINI", 25: "INIT_ARRAY", 26: "FINI_ARRAY", 32: "PREINIT_ARRAY"}
_FLAGS = {0x2: "SYMBOLIC", 0x4: "TEXTREL", 0x8: "BIND_NOW"}  # of DT_FLAGS
_FLAGS_1 = {0x8: "NODELETE", 0x20: "INITFIRST", 0x40: "NOOPEN", 0x400: "INTERPOSE"}  # of DT_FLAGS_1
_TAG_FLAGS, _TAG_FLAGS_1, _TAG_SYMBOLIC, _TAG_TEXTREL, _TAG_BIND_NOW = 30, 0x6FFFFFFB, 16, 22, 24
_HIDDEN_VERSION, _SHN_ABS = 0x8000, 0xFFF1


@dataclass(frozen=True)
class Export:
    """A dynamic symbol that a library defines.

    `version` is as `nm -D` shows it: "@@V" for the default of several versions, "@V" for another
    one, an empty string without versions. `place` is the section and the value: two names with one
    place are aliases.
    """

    name: str
    version: str
    binding: str
    type: str
    visibility: str
    size: int
    place: tuple[int, int]


@dataclass(frozen=True)
class Offered:
    """A linked library or program.

    `exports` are keyed by name and version. `names` are all symbols that it defines, including
    those for itself (unless it is stripped). `undefined` are the symbols that it needs from others,
    and `taken` are those of them that the linker found in a needed library, as their version tells.
    `entries` are the dynamic section's tags that occur once, `code` are the kinds of start-up and
    tear-down code, and `flags` are those for the loader.
    """

    exports: Mapping[str, Export]
    names: frozenset[str]
    undefined: frozenset[str]
    taken: frozenset[str]
    needed: tuple[str, ...]
    entries: Mapping[str, str]
    code: frozenset[str]
    flags: frozenset[str]
    versions: frozenset[str]


def read_offered(path: Path) -> Offered:
    """Read what the library at `path` offers. Raises `LazyckError`."""
    image = elf.open_image(path)
    try:
        return _read(image)
    except (struct.error, LookupError, ValueError) as e:
        raise FormatError(f"{path}: damaged ELF file ({e})", "build it again") from e


def with_named(library: Offered, named: Iterable[str]) -> Offered:
    """Return `library` with all symbols `taken` that the libraries at the paths `named` define,
    since a symbol without a version does not tell where the linker found it. A path that has
    vanished counts as a library without symbols."""
    found = (elf.read_shared(path).defined.keys() for path in named if os.path.isfile(path))
    return replace(library, taken=library.taken | (library.undefined & frozenset().union(*found)))


def read_stubs(path: Path) -> Manifest | None:
    """Return the manifest of a lazy library, or None if all of its blobs are eager. Raises
    `FormatError`."""
    data = elf.read_section(path, abi.MANIFEST_SECTION)
    return None if data is None else decode(data, str(path))


def _read(image: elf.ElfImage) -> Offered:
    own, others = _version_names(image)
    numbers = next((image.content(s) for s in image.sections if s.type == _SHT_VERSYM), b"")
    versions = struct.unpack(f"<{len(numbers) // 2}H", numbers)
    exports: dict[str, Export] = {}
    undefined: set[str] = set()
    taken: set[str] = set()
    for row, s in enumerate(image.symbols(dynamic=True)):
        if s.binding == "LOCAL" or not s.name:
            continue
        number = versions[row] if row < len(versions) else 1
        index = number & ~_HIDDEN_VERSION
        if s.section == 0:
            undefined.add(s.name)
            if index in others:
                taken.add(s.name)
        elif s.section == _SHN_ABS and s.name in own.values():
            continue  # this symbol stands for a version
        elif not s.hidden and index not in others:  # otherwise a program's copy of a library's variable
            at = "@" if number & _HIDDEN_VERSION else "@@"
            version = at + own[index] if index in own else ""
            export = Export(s.name, version, s.binding, s.type, s.visibility, s.size, (s.section, s.value))
            exports[s.name + version] = export
    names = {s.name for s in image.symbols() if s.section != 0 and s.name and s.type not in ("FILE", "SECTION")}
    rows = list(_dynamic(image))
    texts = [(_TEXTS[tag], text) for tag, _, text in rows if tag in _TEXTS]
    return Offered(
        exports,
        frozenset(names | {e.name for e in exports.values()}),
        frozenset(undefined),
        frozenset(taken),
        tuple(text for name, text in texts if name == "NEEDED"),
        {name: text for name, text in texts if name != "NEEDED"},
        frozenset(_CODE[tag] for tag, _, _ in rows if tag in _CODE),
        frozenset(_flags(rows)),
        frozenset(own.values()),
    )


def _dynamic(image: elf.ElfImage) -> Iterator[tuple[int, int, str]]:
    """Yield (tag, value, text) for each row of the dynamic section. The text is empty if the tag
    has none."""
    for section in image.sections:
        if section.type == _SHT_DYNAMIC:
            strings = image.content(image.sections[section.link])
            for tag, value in _DYNAMIC.iter_unpack(image.content(section)):
                if tag == 0:
                    return
                yield tag, value, _text(strings, value) if tag in _TEXTS else ""


def _flags(rows: list[tuple[int, int, str]]) -> Iterator[str]:
    single = {_TAG_SYMBOLIC: "SYMBOLIC", _TAG_TEXTREL: "TEXTREL", _TAG_BIND_NOW: "BIND_NOW"}
    for tag, value, _ in rows:
        if tag in single:
            yield single[tag]
        for bits in (_FLAGS if tag == _TAG_FLAGS else _FLAGS_1 if tag == _TAG_FLAGS_1 else {}).items():
            if value & bits[0]:
                yield bits[1]


def _version_names(image: elf.ElfImage) -> tuple[dict[int, str], frozenset[int]]:
    """Return the versions that a library defines, by number, and the numbers of those that it takes
    from others."""
    own: dict[int, str] = {}
    others: set[int] = set()
    for section in image.sections:
        if section.type not in (_SHT_VERDEF, _SHT_VERNEED):
            continue
        data, strings = image.content(section), image.content(image.sections[section.link])
        at = 0
        for _ in range(section.info):
            if section.type == _SHT_VERDEF:
                _, flags, index, _, _, first, following = _VERDEF.unpack_from(data, at)
                if not flags & 1:  # such a version names the file
                    own[index & ~_HIDDEN_VERSION] = _text(strings, *struct.unpack_from("<I", data, at + first))
            else:
                _, count, _, first, following = _VERNEED.unpack_from(data, at)
                row = at + first
                for _ in range(count):
                    _, _, index, _, step = _VERNAUX.unpack_from(data, row)
                    others.add(index & ~_HIDDEN_VERSION)
                    row += step
            at += following
    return own, frozenset(others)


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode("utf-8", "surrogateescape")
