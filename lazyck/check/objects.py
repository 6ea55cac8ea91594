"""What a blob's object of an ahead-of-time compile defines for others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lazyck.postbuild import elf, kernels

_SHF_WRITE, _SHF_GROUP = 1, 0x200
_COMMON = 0xFFF2
_RESERVED = 0xFF00


@dataclass(frozen=True)
class Defined:
    """A symbol that an object defines. `is_state`: data that a program can change. `place`: section and value.
    `is_merged`: the linker keeps one of all objects' definitions (COMDAT)."""

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

    @property
    def is_function(self) -> bool:
        return self.type in ("FUNC", "IFUNC")


@dataclass(frozen=True)
class BlobObject:
    """The object of one blob. `eager` is the reason why the lazy library has it for real, "" for a lazy blob;
    `handles` names the symbols by which GPU runtimes know kernels, and nvcc's functions that only these call. Of an LTO
    object, which is not `is_readable`, nothing is known."""

    source: str
    eager: str
    symbols: tuple[Defined, ...]
    handles: frozenset[str] = frozenset()
    is_readable: bool = True


def read_blob_object(path: Path, source: str, eager: str) -> BlobObject:
    """The object at `path`. Raises `FormatError`."""
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
        is_state = is_data and (section is None or _is_writable(section))
        is_merged = section is not None and bool(section.flags & _SHF_GROUP)
        type_ = "OBJECT" if s.type == "COMMON" or s.section == _COMMON else s.type
        found.append(Defined(s.name, s.binding, type_, s.visibility, s.size, is_state, (s.section, s.value), is_merged))
    return BlobObject(source, eager, tuple(found), known.by_nvcc.union(known.handles.values()))


def _is_writable(section: elf.Section) -> bool:
    # what only the loader writes to is constant afterwards
    return bool(section.flags & _SHF_WRITE) and not section.name.startswith(".data.rel.ro")
