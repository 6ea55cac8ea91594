"""Reads what a linked library exports and needs: versioned dynamic symbols, the dynamic section."""

import os
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_DT_FLAGS, ENUM_DT_FLAGS_1
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVersionSection, GNUVerSymSection
from elftools.elf.sections import Section, StringTableSection

from lazyck.errors import FormatError
from lazyck.postbuild.objects import elf

_TEXTS = ("DT_NEEDED", "DT_SONAME", "DT_RPATH", "DT_RUNPATH", "DT_AUXILIARY", "DT_FILTER")
_CODE = ("DT_INIT", "DT_FINI", "DT_INIT_ARRAY", "DT_FINI_ARRAY", "DT_PREINIT_ARRAY")
_FLAGS = ("DT_SYMBOLIC", "DT_TEXTREL", "DT_BIND_NOW")  # DT_FLAGS has bits of the same meaning
_FLAGS_1 = ("NODELETE", "INITFIRST", "NOOPEN", "INTERPOSE")
_HIDDEN_VERSION, _SHN_ABS = 0x8000, 0xFFF1
_LEAST_VERSION = 16  # bytes that one version takes in its section
_BASE_VERSION = 1  # a flag: such a version names the file


@dataclass(frozen=True)
class Offered:
    """A linked library or program.

    `exports` are keyed by name and version, which is as `nm -D` shows it: "@@V" for the default of
    several versions, "@V" for another one, an empty string without versions. `names` are all
    symbols that it defines, including those for itself (unless it is stripped). `undefined` are the
    symbols that it needs from others, and `taken` are those of them that the linker found in a
    needed library, as their version tells.
    `entries` are the dynamic section's tags that occur once, `code` are the kinds of start-up and
    tear-down code, and `flags` are those for the loader.
    """

    exports: Mapping[str, elf.Symbol]
    names: frozenset[str]
    undefined: frozenset[str]
    taken: frozenset[str]
    needed: tuple[str, ...]
    entries: Mapping[str, str]
    code: frozenset[str]
    flags: frozenset[str]
    versions: frozenset[str]

    @cached_property
    def exported(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for key, e in self.exports.items():
            found[e.name].append(key.removeprefix(e.name) or "none")
        return dict(found)


def read_offered(path: Path) -> Offered:
    """Read what the library at `path` offers. Raises `LazyckError`."""
    image = elf.open_image(path)
    try:
        return _read(image, ELFFile(BytesIO(image.data)))
    # pyelftools finds some damage by assertions only, and without those (`python -O`) by accident.
    except (ELFError, AssertionError, AttributeError, struct.error, LookupError, ValueError) as e:
        raise FormatError(f"{path}: damaged ELF file ({e})", "build it again") from e


def with_named(library: Offered, named: Iterable[str]) -> Offered:
    """Return `library` with all symbols `taken` that the libraries at the paths `named` define,
    since a symbol without a version does not tell where the linker found it. A path that has
    vanished counts as a library without symbols."""
    found = (elf.read_shared(path).defined.keys() for path in named if os.path.isfile(path))
    return replace(library, taken=library.taken | (library.undefined & frozenset().union(*found)))


def _read(image: elf.ElfImage, file: ELFFile) -> Offered:
    sections = list(file.iter_sections())
    own, others = _version_names(sections)
    numbers = next((s.data() for s in sections if isinstance(s, GNUVerSymSection)), b"")
    versions = struct.unpack(f"<{len(numbers) // 2}H", numbers)
    exports: dict[str, elf.Symbol] = {}
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
            exports[s.name + (at + own[index] if index in own else "")] = s
    names = {s.name for s in image.symbols() if s.section != 0 and s.name and s.type not in ("FILE", "SECTION")}
    tags: list[tuple[str, int]] = []
    texts: list[tuple[str, str]] = []
    if dynamic := next((s for s in sections if isinstance(s, DynamicSection)), None):
        tags += [(tag["d_tag"], tag["d_val"]) for tag in dynamic.iter_tags()]
        strings = file.get_section(dynamic["sh_link"])
        assert isinstance(strings, StringTableSection)
        texts += [(tag[3:], strings.get_string(value)) for tag, value in tags if tag in _TEXTS]
    return Offered(
        exports,
        frozenset(names | {e.name for e in exports.values()}),
        frozenset(undefined),
        frozenset(taken),
        tuple(text for name, text in texts if name == "NEEDED"),
        {name: text for name, text in texts if name != "NEEDED"},
        frozenset(tag[3:] for tag, _ in tags if tag in _CODE),
        frozenset(_flags(tags)),
        frozenset(own.values()),
    )


def _flags(tags: Iterable[tuple[str, int]]) -> Iterator[str]:
    for tag, value in tags:
        if tag in _FLAGS:
            yield tag[3:]
        elif tag == "DT_FLAGS":
            yield from (flag[3:] for flag in _FLAGS if value & ENUM_DT_FLAGS["DF_" + flag[3:]])
        elif tag == "DT_FLAGS_1":
            yield from (flag for flag in _FLAGS_1 if value & ENUM_DT_FLAGS_1["DF_1_" + flag])


def _version_names(sections: Iterable[Section]) -> tuple[dict[int, str], frozenset[int]]:
    """Return the versions that a library defines, by number, and the numbers of foreign ones."""
    own: dict[int, str] = {}
    others: set[int] = set()
    for section in sections:
        if not isinstance(section, GNUVersionSection):
            continue
        if section.num_versions() * _LEAST_VERSION > section["sh_size"]:  # pyelftools would read on without end
            raise ValueError("more versions than there is room for")
        for version, names in section.iter_versions():
            if isinstance(section, GNUVerNeedSection):
                others.update(name["vna_other"] & ~_HIDDEN_VERSION for name in names)
            elif not version["vd_flags"] & _BASE_VERSION:
                own[version["vd_ndx"] & ~_HIDDEN_VERSION] = next(names).name
    return own, frozenset(others)
