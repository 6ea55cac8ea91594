"""Keeps the runtime's own definitions apart from a lazy library's definitions of the same name.

Templates of the C++ library stay visible regardless of `-fvisibility`, since its headers ask for
that: a lazy library would export dozens of the runtime's instances. Hiding them is not enough. A
linker takes the strictest visibility of all definitions of a name, so that the library's own
definitions would be hidden, too. The runtime's definitions therefore get other names. So do the
uses of those functions of the C++ library that the runtime defines itself
(`src/platform/cxx_library.cpp`). The names of template instances in a library's symbol table would
make up a third of the runtime's size, so they get short names.

Compilers give each instance a section and a group. Reading these thousands would take most of the
time of a small library's link. One source makes them all, so they need none of their own.
"""

import hashlib
import re
import struct
from pathlib import Path

_KEPT = re.compile(r"lazyck_|_Z(T[IVS])?N6lazyck12CompileError")  # the C interface, and what callers catch
_HAD = frozenset({"_ZSt28__throw_bad_array_new_lengthv"})  # C++ library functions that the runtime defines too
_MARK = b".lazyck"
_OF_CXX_LIBRARY = re.compile(rb"_Z(T[CISTV])?(NK?)?(S|9__gnu_cxx)")
_ROW = struct.Struct("<IBBHQQ")
_LOCAL, _WEAK = 0, 2  # bindings
_HIDDEN = 2
_PLACE_IN_HEADER = 24  # of a section's offset in the file, which its size follows
# The directive of a section that is a group's: its kind, its flags, its type.
_GROUPED = re.compile(
    rb"(\.section\s+\.(?:text|bss|data(?:\.rel)?(?:\.ro)?(?:\.local)?|rodata|gcc_except_table))\.[^,\n]*"
    rb',"(\w+)G",([@%]\w+),[^,\n]*,comdat'
)


def joined(assembly: bytes) -> bytes:
    """Return the assembler's source with the sections of groups joined to those of other code."""
    return _GROUPED.sub(rb'\1,"\2",\3', assembly)


def set_apart(path: Path) -> None:
    """Rename and hide the global symbols of the object at `path`, except the interfaces.
    Uses of such names from other objects of the runtime are renamed too."""
    # imported here, because only a compile of the runtime needs it
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    with path.open("r+b") as f:
        image = ELFFile(f)
        table = image.get_section_by_name(".symtab")
        if not isinstance(table, SymbolTableSection):
            return
        # The strings stay: sections may use the table, too, and names may share their ends.
        strings = bytearray(table.stringtable.data())
        # A linker keeps the first of groups with one name, and would discard the library's own.
        groups = {section["sh_info"] for section in image.iter_sections("SHT_GROUP")}
        rows: list[bytes] = []
        for name, info, other, section, value, size in _ROW.iter_unpack(table.data()):
            text = bytes(strings[name : strings.index(0, name)])
            is_global = info >> 4 != _LOCAL
            # Inline functions of headers are hidden already, and each object has its own.
            is_own = is_global and bool(section) and (not other & 3 or info >> 4 == _WEAK)
            is_apart = (is_own or len(rows) in groups) and not _KEPT.match(text.decode())
            is_long = bool(section) and not is_global and _OF_CXX_LIBRARY.match(text)
            if is_apart or is_long or (is_global and text.decode() in _HAD):
                name, other = len(strings), other | (_HIDDEN if is_global else 0)
                strings += _apart(text) + b"\0"
            rows.append(_ROW.pack(name, info, other, section, value, size))
        at_end = f.seek(0, 2)
        f.write(strings)
        f.seek(table["sh_offset"])
        f.write(b"".join(rows))
        f.seek(image["e_shoff"] + table["sh_link"] * image["e_shentsize"] + _PLACE_IN_HEADER)
        f.write(struct.pack("<QQ", at_end, len(strings)))


def _apart(name: bytes) -> bytes:
    """Return a deterministic name that cannot collide with a library's own."""
    return (hashlib.sha256(name).hexdigest()[:16].encode() if _OF_CXX_LIBRARY.match(name) else name) + _MARK
