"""Reads what a blob's object from an ahead-of-time compile defines for others."""

from dataclasses import dataclass
from pathlib import Path

from lazyck.postbuild.objects import elf, kernels
from lazyck.postbuild.probe.real_object import start_up

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
    they call. `start_up` are names to which code that runs at load refers, if somebody can tell
    when it does. `needs` are the symbols that others must define. Nothing is known of an LTO
    object, which is not `is_readable`.
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
    # The compiler's own code registers kernels, in time for the launches of a lazy blob, which the
    # blob makes itself.
    called, _ = start_up(image, table, of_headers=True)
    at_load = frozenset(called) - handles
    return BlobObject(source, eager, tuple(found), handles, start_up=at_load, needs=elf.asked_for(table))
