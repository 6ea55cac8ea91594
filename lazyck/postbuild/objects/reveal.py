"""Offers blobs what the objects of their library hide, by editing the symbol tables of copies.

Ahead of time, all files of a library see each other's hidden symbols. A blob is a library of its
own, and does not see them. So a symbol that blobs may use has a private name besides, which is
exported, and which no other library has: the loader binds by name. The plain name stays as it is.
Functions of blobs that the library hides have private names, too. The runtime gives these names to
the symbols of the blobs' objects, both where they define such a symbol and where they refer to it
(runtime/src/store/private_names.cpp).

Header state is among these symbols: inline variables, and static variables of templates and of
inline functions. Blobs have such definitions too, and use the library's, which the loader finds
first.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from lazyck import abi
from lazyck.files import encode
from lazyck.postbuild.objects import elf

# Vtables and type information exist in each file that needs them, also ahead of time. They are
# compared by name.
_ARTIFICIAL = re.compile(r"_ZT[VITSC]|DW\.ref\.")

# What blobs register with these functions for the end of a thread or the program belongs to their
# library: they call functions of the runtime in place of these, by private names.
AT_EXIT = {
    "__cxa_atexit": "lazyck_cxa_atexit",
    "__cxa_thread_atexit": "lazyck_cxa_thread_atexit",
    "atexit": "lazyck_atexit",
    "at_quick_exit": "lazyck_at_quick_exit",
}


def offer(source: Path, target: Path, names: Mapping[str, str], *, is_excluded: bool = False) -> bool:
    """Make `target` a copy of the object or archive `source`. Each symbol that `names` maps to a
    private name is exported under that name, too. If it `is_excluded`, all other symbols become
    hidden, as `--exclude-libs` makes them. Return whether a copy was made: none is if it would be
    equal, or if only the compiler knows the symbols (LTO)."""
    members = list(elf.members(source))
    images = [elf.ElfImage(content, str(source)) if content[:4] == b"\x7fELF" else None for _, content in members]
    made: list[bytes] = []
    for image in images:
        if image is None or image.is_lto:
            return False
        own = elf.ElfImage(image.with_hidden(), image.where) if is_excluded else image
        made.append(own.with_aliases(names))
    if all(new == content for new, (_, content) in zip(made, members, strict=True)):
        return False
    if elf.kind(source) == "archive":
        elf.write_archive(target, [(name, content) for (name, _), content in zip(members, made, strict=True)])
    else:
        target.write_bytes(made[0])
    return True


def is_header_state(s: elf.Symbol) -> bool:
    """Return whether `s` is a variable that several files define, and a link takes once."""
    return s.binding in ("WEAK", "UNIQUE") and s.type in ("OBJECT", "TLS") and not is_artificial(s.name)


def is_artificial(name: str) -> bool:
    """Return whether `name` is that of a vtable or of type information."""
    return _ARTIFICIAL.match(name) is not None


def private_name(symbol: str, tag: str) -> str:
    """Return the private name of `symbol` in the library of that `tag`."""
    return abi.PRIVATE_LEAD + hashlib.sha256(encode(symbol + tag)).hexdigest()[: abi.PRIVATE_DIGITS]


def plain_name(symbol: str) -> str:
    """Return a symbol of a manifest without the mark that its stub has a private name."""
    return symbol.removesuffix(abi.PRIVATE_MARK)
