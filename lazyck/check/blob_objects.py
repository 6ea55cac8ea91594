"""Reads what a blob's object from an ahead-of-time compile defines for others."""

import re
from dataclasses import dataclass
from pathlib import Path

from lazyck.postbuild.cxx.mangled import identifiers, is_of_the_standard_library, scopes_of
from lazyck.postbuild.objects import elf, kernels
from lazyck.postbuild.probe.preprocess import read_source
from lazyck.postbuild.probe.real_object import HARMLESS, START_UP

_RUN_AT_LOAD = re.compile(r"\.(?:init_array|fini_array|ctors|dtors)\b")
_WORD = re.compile(r"\w+")
_SHF_WRITE, _SHF_GROUP = 1, 0x200
_COMMON = 0xFFF2
_RESERVED = 0xFF00


@dataclass(frozen=True)
class Defined:
    """A symbol that an object defines. `is_state` marks data that a program can change. `place` is
    the section and the value. `is_merged` marks a COMDAT: the linker keeps one of all objects'
    definitions."""

    name: str
    binding: str
    type: str
    visibility: str
    size: int
    is_state: bool
    place: tuple[int, int]
    is_merged: bool = False

    @property
    def is_hidden(self) -> bool:
        return self.visibility in ("hidden", "internal")


@dataclass(frozen=True)
class BlobObject:
    """The object of one blob. `eager` is the reason why the lazy library contains it, or an empty
    string for a lazy blob.

    `handles` are the symbols by which GPU runtimes know kernels, and nvcc's functions that only
    they call. `start_up` are names that the source itself mentions and to which code that runs at
    load refers. `needs` are the symbols that others must define. Nothing is known of an LTO object,
    which is not `is_readable`.
    """

    source: str
    eager: str
    symbols: tuple[Defined, ...]
    handles: frozenset[str] = frozenset()
    is_readable: bool = True
    start_up: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()


def read_blob_object(path: Path, source: str, eager: str) -> BlobObject:
    """Read the object at `path`. Raises `FormatError`."""
    image = elf.open_image(path) if elf.kind(path) == "object" else None
    if image is None or image.is_lto:
        return BlobObject(source, eager, (), is_readable=False)
    found: list[Defined] = []
    table = image.symbols()
    known = kernels.find(table)
    for s in table:
        if s.binding == "LOCAL" or s.section == 0 or not s.name:
            continue
        is_data = s.type in ("OBJECT", "TLS", "COMMON") or s.section == _COMMON
        section = image.sections[s.section] if s.section < _RESERVED else None
        # Data that only the loader writes to is constant afterwards.
        is_constant = section and (not section.flags & _SHF_WRITE or section.name.startswith(".data.rel.ro"))
        is_state = is_data and not is_constant
        is_merged = section is not None and bool(section.flags & _SHF_GROUP)
        type_ = "OBJECT" if s.type == "COMMON" or s.section == _COMMON else s.type
        found.append(Defined(s.name, s.binding, type_, s.visibility, s.size, is_state, (s.section, s.value), is_merged))
    handles = known.by_nvcc.union(known.handles.values())
    start_up = _start_up(image, table, source, handles)
    return BlobObject(source, eager, tuple(found), handles, start_up=start_up, needs=elf.asked_for(table))


def _start_up(image: elf.ElfImage, table: list[elf.Symbol], source: str, handles: frozenset[str]) -> frozenset[str]:
    """Return the names to which the start-up code of an object refers and which its source
    mentions. The `handles` of kernels are left out: the compiler's own code registers them, in time
    for the launches of a lazy blob, which the blob makes itself.

    Calls are not followed, unlike in the probe. The whole contents of sections that compilers have
    for such code count, and each function with a name that compilers give to such code.
    """
    functions = [s for s in table if s.type == "FUNC" and 0 < s.section < len(image.sections)]
    named = [(s.section, s.value, s.value + s.size) for s in functions if START_UP.match(s.name)]
    of_main = [(s.section, s.value, s.value + s.size) for s in functions if s.name == "main"]
    found: set[str] = set()
    for i, section in enumerate(image.sections):
        if _RUN_AT_LOAD.match(section.name):
            places = [(table[s].section, table[s].value + addend) for _, s, addend in image.relocations(i)]
            found.update(s.name for s in functions if (s.section, s.value) in places)
        everywhere = section.name.startswith(".text.startup")
        ranges = [(low, high) for at, low, high in named if at == i]
        left_out = [(low, high) for at, low, high in of_main if at == i]
        if everywhere or ranges:
            for offset, target, _ in image.relocations(i):
                is_there = everywhere or any(low <= offset < high for low, high in ranges)
                if is_there and not any(low <= offset < high for low, high in left_out):
                    found.add(table[target].name)
    found -= handles
    known = (n for n in found if n and not HARMLESS.match(n) and not START_UP.match(n))
    wanted = {n for n in known if not is_of_the_standard_library(n)}
    words = frozenset(_WORD.findall(read_source(source))) if wanted else frozenset()
    # A variable of the source stands in namespaces that the source mentions. A variable of a header
    # may merely share its name with something in the source.
    shared = {s.name for s in table if s.type == "OBJECT" and s.binding != "GLOBAL"}
    return frozenset(n for n in wanted if identifiers(n) & words and (n not in shared or scopes_of(n) <= words))
