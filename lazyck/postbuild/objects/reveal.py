"""Shows blobs what the objects of their library hide, by editing the symbol tables of copies.

Ahead of time, all files of a library see each other's hidden symbols. A blob is a library of its
own, and does not see them. A symbol that blobs need becomes protected. It is then exported, and the
library's own code, which was compiled for a hidden symbol, is still bound to it, whatever other
libraries define. Blobs use it by a private name, which no other library has: the loader binds by
name. So do blobs with functions that `-fvisibility=hidden` keeps within the library. The runtime
gives that name to the symbols of the blobs' objects, both where they define such a function and
where they refer to it (runtime/src/store/private_names.cpp). A stub has the private name and the
plain one, and so has what the library's own objects hide.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from lazyck import abi
from lazyck.files import encode
from lazyck.postbuild.objects import elf, kernels

# Vtables and type information exist in each file that needs them, also ahead of time. They are
# compared by name.
_ARTIFICIAL = re.compile(r"_ZT[VITSC]|DW\.ref\.")
_PROTECTED, _WEAK = 3, 2


def reveal(source: Path, target: Path, names: Collection[str], aliases: Mapping[str, str]) -> bool:
    """Make `target` a copy of the object or archive `source` that exports the hidden symbols
    `names` and the hidden state of headers. Symbols that `aliases` maps to another name are
    exported under that name too. Return whether `source` has any of these; if it has none, no copy
    is made. Archives with LTO objects get no aliases, because only the compiler knows their names.

    State of headers are variables that each file defines and of which the link takes one
    definition: inline variables, and static variables of templates and of inline functions. Blobs
    have such definitions too, and must use the library's. One that is unique in its process becomes
    an ordinary weak symbol: ahead of time, other libraries do not share it. Handles of kernels that
    headers define are such state too.
    """
    members = elf.placed_members(source)
    changes = [c for _, at, content in members for c in _changes(content, str(source), at, names)]
    if changes:
        data = bytearray(source.read_bytes())
        for at, byte in changes:
            data[at] = byte
        target.write_bytes(data)
        if aliases:
            _add_aliases(target, aliases)
    return bool(changes)


def _add_aliases(path: Path, aliases: Mapping[str, str]) -> None:
    members = list(elf.members(path))
    images = [elf.ElfImage(content, str(path)) if content[:4] == b"\x7fELF" else None for _, content in members]
    if all(image is not None and not image.is_lto for image in images):
        made = [image.with_aliases(aliases) for image in images if image is not None]
        if elf.kind(path) == "archive":
            elf.write_archive(path, [(name, content) for (name, _), content in zip(members, made, strict=True)])
        else:
            path.write_bytes(made[0])


def _changes(data: bytes, where: str, base: int, names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield (offset in the file, new byte) for one object, which begins at `base`."""
    if data[:4] != b"\x7fELF":
        return
    image = elf.ElfImage(data, where)
    handles = kernels.find(image.symbols()).names()
    for row, s in image.symbol_rows():
        is_shared = is_header_state(s) or (s.binding == "WEAK" and s.name in handles)
        if not s.hidden or s.binding == "LOCAL" or not (s.name in names or is_shared):
            continue
        info, other = data[row + 4], data[row + 5]
        yield base + row + 5, (other & ~3) | _PROTECTED
        if s.binding == "UNIQUE":
            yield base + row + 4, (info & 15) | (_WEAK << 4)


def is_header_state(s: elf.Symbol) -> bool:
    """Return whether `s` is a variable that several files define, and a link takes once."""
    return s.binding in ("WEAK", "UNIQUE") and s.type in ("OBJECT", "TLS") and not is_artificial(s.name)


def is_artificial(name: str) -> bool:
    """Return whether `name` is that of a vtable or of type information."""
    return _ARTIFICIAL.match(name) is not None


def private_name(symbol: str, library: str) -> str:
    """Return the private name of `symbol` in the library of that soname ("" for the program)."""
    return f"{symbol}{abi.PRIVATE_MARK}{hashlib.sha256(encode(library)).hexdigest()[:8]}"


def plain_name(symbol: str) -> str:
    """Return the name of which `symbol` is the private one, or `symbol` itself if it is none."""
    return symbol.rpartition(abi.PRIVATE_MARK)[0] or symbol
