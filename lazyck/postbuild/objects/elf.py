"""Reads ELF files (64 bit, little endian) and ar archives: symbols, sections, relocations, deferred
records. Nothing in a file is trusted: any bytes are either read or refused.

Tables are unpacked with `struct` in one sweep. pyelftools, which makes an object of each row, is
too slow for a link of thousands of objects: 3,000 small objects take 6.2 s instead of 0.18 s to
open, 20,000 sections 0.75 s instead of 0.05 s, 20,000 symbols 1.3 s instead of 0.06 s, and the
dynamic section of one library 14 ms instead of 0.1 ms. It reads what is read once a command
(postbuild/objects/offered.py).
"""

import mmap
import os
import stat
import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from lazyck import abi
from lazyck.errors import BuildError, FormatError
from lazyck.formats.record import decode_records
from lazyck.toolchains.command import CompileCommand

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_DYNAMIC = struct.Struct("<qQ")
_DT_NEEDED, _DT_SONAME, _SHF_ALLOC = 1, 14, 2
_IRELATIVE = frozenset({37, 1032, 58})  # relocations of x86-64, aarch64 and riscv64 that call a resolver
_ET_REL, _ET_DYN = 1, 3
_SHT_GNU_VERSYM, _HIDDEN_VERSION = 0x6FFFFFFF, 0x8000
_SHT_SYMTAB, _SHT_RELA, _SHT_DYNAMIC, _SHT_NOBITS, _SHT_DYNSYM, _SHT_GROUP, _SHT_SYMTAB_SHNDX = 2, 4, 6, 8, 11, 17, 18
_SHN_UNDEF, _SHN_LORESERVE, _SHN_XINDEX = 0, 0xFF00, 0xFFFF
_STO_VARIANT = 0x80  # STO_AARCH64_VARIANT_PCS, STO_RISCV_VARIANT_CC
_WEAK, _UNIQUE = 2, 10
_BINDINGS = {0: "LOCAL", 1: "GLOBAL", 2: "WEAK", 10: "UNIQUE"}
_IFUNC = 10
_TYPES = {0: "NOTYPE", 1: "OBJECT", 2: "FUNC", 3: "SECTION", 4: "FILE", 5: "COMMON", 6: "TLS", 10: "IFUNC"}
_FUNCTIONS = ("FUNC", "IFUNC")
_VISIBILITIES = ("default", "internal", "hidden", "protected")
_MOST_TEXT, _MOST_SHARING = 1 << 20, 256  # in characters; as a multiple of a string table's size
_STARTUP = (".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors")
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_AR, _THIN = b"!<arch>\n", b"!<thin>\n"

Kind = Literal["object", "shared", "executable", "archive", "bitcode", "other"]


class Symbol(NamedTuple):
    """Describes one row of a symbol table. `section` is 0 if the symbol is undefined, and >= 0xff00
    for absolute and common ones."""

    name: str
    binding: str
    type: str
    section: int
    value: int
    size: int
    visibility: str = "default"
    has_vectors: bool = False  # has arguments in vector registers, which not every calling convention has

    @property
    def hidden(self) -> bool:
        return self.visibility in ("hidden", "internal")


WANTED_HERE = "@hidden"


def asked_for(table: Iterable[Symbol]) -> frozenset[str]:
    """Return the names that an object with these symbols leaves undefined. One that it declares
    hidden must be in the same library: it is also returned with `WANTED_HERE` behind it. A weak
    reference asks for nothing."""
    wanted = [s for s in table if s.section == _SHN_UNDEF and s.name and s.binding not in ("LOCAL", "WEAK")]
    return frozenset(s.name for s in wanted).union(s.name + WANTED_HERE for s in wanted if s.hidden)


class Section(NamedTuple):
    name: str
    type: int
    offset: int
    size: int
    link: int
    info: int
    flags: int = 0


@dataclass(frozen=True)
class SymbolNames:
    """Holds what a relocatable object, or several, define and ask for, without local symbols."""

    defined: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()
    strong: frozenset[str] = frozenset()  # those of `defined` that are neither weak nor merged
    hidden: frozenset[str] = frozenset()  # those of `defined` that only their library sees; none of LTO's
    asked_for: frozenset[str] = frozenset()  # those of `undefined` that are not only weak
    functions: frozenset[str] = frozenset()  # those of `defined` that are no data
    unique: frozenset[str] = frozenset()  # those of `defined` of which a process has one (GNU's)
    has_startup: bool = False  # has code that runs at load or unload
    resolved: frozenset[str] = frozenset()  # functions whose code a resolver chooses while the loader relocates (IFUNC)
    is_deferred: bool = False
    is_lto: bool = False  # if so, the sets of one object may be empty or incomplete


@dataclass(frozen=True)
class SharedSymbols:
    """Holds what a shared library exports (name to binding), asks for, is called and needs."""

    defined: dict[str, str]
    functions: frozenset[str]  # those of `defined` that are no data
    undefined: frozenset[str]
    weak_undefined: frozenset[str]
    soname: str | None
    needed: tuple[str, ...]
    older: frozenset[str] = frozenset()  # those of `defined` that only have versions which no new link takes

    @property
    def linkable(self) -> frozenset[str]:
        """Return what a link finds in the library."""
        return frozenset(self.defined.keys() - self.older)


class ElfImage:
    """Holds sections, symbols and relocations of an ELF file in memory. Raises `FormatError`."""

    def __init__(self, data: bytes | mmap.mmap, where: str) -> None:
        self.data, self.where = memoryview(data), where
        if len(self.data) < _HEADER.size or bytes(self.data[:6]) != b"\x7fELF\x02\x01":
            raise FormatError(f"{where}: not a 64-bit little-endian ELF file")
        head = _HEADER.unpack_from(self.data)
        self.ident: bytes = head[0]
        self.type: int = head[1]
        self.machine = abi.machine_name(head[2])
        with _reading(where):
            self.sections = self._read_sections(head[6], head[11], head[12], head[13])

    @property
    def is_deferred(self) -> bool:
        return self.ident[9:16] == abi.OBJECT_MARK

    @cached_property
    def is_lto(self) -> bool:
        return any(s.name.startswith((".gnu.lto_", ".gnu.debuglto_")) or s.name == ".llvm.lto" for s in self.sections)

    @cached_property
    def merged_sections(self) -> frozenset[int]:
        """Return the sections in groups, of which a linker keeps one copy among all objects."""
        found: set[int] = set()
        for s in self.sections:
            if s.type == _SHT_GROUP:
                content = self.content(s)
                found.update(struct.unpack(f"<{len(content) // 4}I", content[: len(content) & ~3])[1:])
        return frozenset(found)

    def _read_sections(self, at: int, entry_size: int, count: int, names_index: int) -> list[Section]:
        if at == 0:
            return []
        if entry_size != _SECTION.size:
            raise ValueError(f"section headers of {entry_size} bytes")
        if count == 0 or names_index == _SHN_XINDEX:  # too many sections for the header: the first row says how many
            first = _SECTION.unpack_from(self.data, at)
            count = count or first[5]
            names_index = first[6] if names_index == _SHN_XINDEX else names_index
        rows = list(_SECTION.iter_unpack(self.data[at : at + count * _SECTION.size]))
        names = _Strings(bytes(self.data[rows[names_index][4] : rows[names_index][4] + rows[names_index][5]]))
        return [Section(names.text(r[0]), r[1], r[4], r[5], r[6], r[7], r[2]) for r in rows]

    def content(self, section: Section) -> bytes:
        if section.type == _SHT_NOBITS:
            return b""
        return bytes(self.data[section.offset : section.offset + section.size])

    def symbols(self, *, dynamic: bool = False) -> list[Symbol]:
        """Return all rows of `.symtab` (or `.dynsym`), in the order that relocations mean."""
        wanted = _SHT_DYNSYM if dynamic else _SHT_SYMTAB
        with _reading(self.where):
            found = next(((i, table) for i, table in enumerate(self.sections) if table.type == wanted), None)
            return self._read_symbols(*found) if found else []

    def symbol_rows(self) -> list[tuple[int, Symbol]]:
        """Return all rows of `.symtab`, each with its offset in the file."""
        start = next((s.offset for s in self.sections if s.type == _SHT_SYMTAB), 0)
        return [(start + i * _SYMBOL.size, s) for i, s in enumerate(self.symbols())]

    def named(self, section: str) -> bytes | None:
        return next((self.content(s) for s in self.sections if s.name == section), None)

    def with_aliases(self, aliases: Mapping[str, str]) -> bytes:
        """Return the relocatable object with further names, which are exported, for symbols that it
        defines. One that is unique in its process is an ordinary weak symbol under its further
        name. The symbol table and the string table grow, and stand at the end."""
        index = next((i for i, s in enumerate(self.sections) if s.type == _SHT_SYMTAB), 0)
        defined = ((i, s) for i, s in enumerate(self.symbols()) if s.section and s.binding != "LOCAL")
        shown = [(i, s.name) for i, s in defined if s.name in aliases]
        if not shown:
            return bytes(self.data)
        table = self.sections[index]
        names, rows = bytearray(self.content(self.sections[table.link])), bytearray(self.content(table))
        grown = {index: rows, table.link: names}
        for i, s in enumerate(self.sections):
            if s.type == _SHT_SYMTAB_SHNDX and s.link == index:
                grown[i] = bytearray(self.content(s))
        for i, name in shown:
            _, info, other, *rest = _SYMBOL.unpack_from(rows, i * _SYMBOL.size)
            info = info & 15 | _WEAK << 4 if info >> 4 == _UNIQUE else info
            rows += _SYMBOL.pack(len(names), info, other & ~3, *rest)
            names += os.fsencode(aliases[name]) + b"\0"
            for extended in (grown[k] for k in grown.keys() - {index, table.link}):
                extended += extended[4 * i : 4 * i + 4]
        return self._with(grown)

    def with_references(self, names: Mapping[str, str], weak: Container[str]) -> bytes:
        """Return the relocatable object with other `names` for symbols that it refers to, and with
        weak references to those in `weak`."""
        index = next((i for i, s in enumerate(self.sections) if s.type == _SHT_SYMTAB), 0)
        table = self.sections[index]
        texts, rows = bytearray(self.content(self.sections[table.link])), bytearray(self.content(table))
        for i, s in enumerate(self.symbols()):
            if s.section == 0 and s.name in names:
                struct.pack_into("<I", rows, i * _SYMBOL.size, len(texts))
                texts += os.fsencode(names[s.name]) + b"\0"
            if s.section == 0 and s.name in weak:
                rows[i * _SYMBOL.size + 4] = rows[i * _SYMBOL.size + 4] & 15 | _WEAK << 4
        return self._with({index: rows, table.link: texts})

    def _with(self, contents: Mapping[int, bytearray]) -> bytes:
        """Return the object with other `contents` of sections, which stand at its end."""
        data = bytearray(self.data)
        head = _HEADER.unpack_from(self.data)
        for i, content in contents.items():
            data += bytes(-len(data) % 8)
            struct.pack_into("<QQ", data, head[6] + i * head[11] + 24, len(data), len(content))
            data += content
        return bytes(data)

    def with_hidden(self) -> bytes:
        """Return the relocatable object with all symbols hidden that it defines for others."""
        data = bytearray(self.data)
        for at, s in self.symbol_rows():
            if s.section and s.binding != "LOCAL" and s.visibility in ("default", "protected"):
                data[at + 5] = data[at + 5] & ~3 | _VISIBILITIES.index("hidden")
        return bytes(data)

    def _read_symbols(self, index: int, table: Section) -> list[Symbol]:
        strings = _Strings(self.content(self.sections[table.link]))
        extended: tuple[int, ...] = ()
        for s in self.sections:
            if s.type == _SHT_SYMTAB_SHNDX and s.link == index:
                extended = struct.unpack(f"<{s.size // 4}I", self.content(s))
                break  # there is one; tables that overlap would cost the square of the file's size
        return [
            Symbol(
                strings.text(name),
                _BINDINGS.get(info >> 4, "GLOBAL"),
                _TYPES.get(info & 15, "NOTYPE"),
                extended[i] if section == _SHN_XINDEX and extended else section,
                value,
                size,
                _VISIBILITIES[other & 3],
                bool(other & _STO_VARIANT),
            )
            for i, (name, info, other, section, value, size) in enumerate(_SYMBOL.iter_unpack(self.content(table)))
        ]

    def relocations(self, section: int) -> Iterator[tuple[int, int, int]]:
        """Yield (offset, symbol index, addend) of all relocations that apply to that section."""
        left = len(self.data)
        for s in self._relocating.get(section, ()):
            with _reading(self.where):
                rows = list(_RELA.iter_unpack(self.content(s)))
                left -= len(rows) * _RELA.size
                if left < 0:
                    raise ValueError("its relocations overlap")
            for offset, info, addend in rows:
                yield offset, info >> 32, addend

    @cached_property
    def _relocating(self) -> dict[int, list[Section]]:
        """Return the sections of relocations, by the section that they apply to."""
        found: dict[int, list[Section]] = {}
        for s in self.sections:
            if s.type == _SHT_RELA:
                found.setdefault(s.info, []).append(s)
        return found


class _Strings:
    """Reads a string table. Names may overlap, and a small file could spell out terabytes, so there
    is a bound on what is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = _MOST_TEXT + _MOST_SHARING * len(data)

    def text(self, at: int) -> str:
        end = self.data.index(b"\0", at)
        self.left -= end - at
        if self.left < 0:
            raise ValueError("its names repeat themselves without end")
        return self.data[at:end].decode("utf-8", "surrogateescape")


def kind(path: str | Path) -> Kind:
    """Return what a linker input is by its first bytes: `other` may be a linker script."""
    with _opened(path) as f:
        head = f.read(_HEADER.size)
    if head[:8] in (_AR, _THIN):
        return "archive"
    if head[:4] in _BITCODE:
        return "bitcode"
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 18:
        return "other"
    return {_ET_REL: "object", _ET_DYN: "shared"}.get(int.from_bytes(head[16:18], "little"), "executable")  # type: ignore[return-value]


def open_image(path: str | Path) -> ElfImage:
    return ElfImage(_read(path), str(path))


def machine(path: str | Path) -> str:
    """Return the machine of an object, or of the first in an archive, or an empty string."""
    return next((image.machine for image in _images_in(path)), "")


def read_object(path: str | Path) -> SymbolNames:
    """Return the symbols of a relocatable object (or of LLVM bitcode, whose sets stay empty)."""
    return _names_in(_read(path), str(path))


def read_archive(path: str | Path) -> list[tuple[str, SymbolNames]]:
    """Return (member name, symbols) of each object, in order. Thin archives are followed."""
    return [(name, _names_in(data, f"{path}({name})")) for name, _, data in _objects_in(path)]


def read_shared(path: str | Path) -> SharedSymbols:
    image = _mapped(path)
    rows = image.symbols(dynamic=True)
    table = [s for s in rows if s.name and s.binding != "LOCAL"]
    defined = {s.name: s.binding for s in table if s.section != _SHN_UNDEF and not s.hidden}
    functions = frozenset(s.name for s in table if s.type in _FUNCTIONS and s.name in defined)
    undefined = frozenset(s.name for s in table if s.section == _SHN_UNDEF)
    weak = frozenset(s.name for s in table if s.section == _SHN_UNDEF and s.binding == "WEAK")
    return SharedSymbols(defined, functions, undefined, weak, *_names_of(image), _older(image, rows))


def _older(image: ElfImage, rows: Iterable[Symbol]) -> frozenset[str]:
    """Return those of the dynamic symbols `rows` that have versions, none of which is the
    default."""
    versions = next((image.content(s) for s in image.sections if s.type == _SHT_GNU_VERSYM), b"")
    if all(high < _HIDDEN_VERSION >> 8 for high in set(versions[1::2])):
        return frozenset()  # as for most libraries, of which some have a million symbols
    names: dict[str, bool] = {}
    for symbol, (version,) in zip(rows, struct.iter_unpack("<H", versions), strict=False):
        if symbol.section != _SHN_UNDEF:
            names[symbol.name] = bool(version & _HIDDEN_VERSION) and names.get(symbol.name, True)
    return frozenset(name for name, is_older in names.items() if is_older)


def _names_of(image: ElfImage) -> tuple[str | None, tuple[str, ...]]:
    """Return the soname of a shared library or program, and what it needs."""
    soname, needed = None, []
    with _reading(image.where):
        for section in image.sections:
            if section.type == _SHT_DYNAMIC:
                strings = _Strings(image.content(image.sections[section.link]))
                for tag, value in _DYNAMIC.iter_unpack(image.content(section)):
                    if tag == _DT_SONAME:
                        soname = strings.text(value)
                    elif tag == _DT_NEEDED:
                        needed.append(strings.text(value))
                break  # there is one; tables that overlap would cost the square of the file's size
    return soname, tuple(needed)


def has_resolvers(path: str | Path) -> bool:
    """Return whether functions of a shared library or program choose code (IFUNC) while the loader
    relocates it."""
    image = _mapped(path)
    if any(info & 0xFFFFFFFF in _IRELATIVE for info in _relocated(image)):
        return True
    with _reading(image.where):
        rows = next((image.content(s) for s in image.sections if s.type == _SHT_DYNSYM), b"")
        return any(info & 15 == _IFUNC and section for _, info, _, section, *_ in _SYMBOL.iter_unpack(rows))


def called_by(path: str | Path) -> frozenset[str]:
    """Return the symbols that a shared library reaches by the loader: its own, too, which another
    file may define in their place."""
    image = _mapped(path)
    table = image.symbols(dynamic=True)
    with _reading(image.where):
        return frozenset(table[info >> 32].name for info in _relocated(image))


def _relocated(image: ElfImage) -> Iterator[int]:
    """Yield the symbol and type of each of the loader's relocations."""
    with _reading(image.where):
        for section in image.sections:
            if section.type == _SHT_RELA and section.flags & _SHF_ALLOC:
                yield from (info for _, info, _ in _RELA.iter_unpack(image.content(section)))


@cache
def read_dependency(path: str) -> SharedSymbols:
    """Return what `read_shared` does, for a library that this process does not make: it is read
    once, since it may have hundreds of megabytes."""
    return read_shared(path)


def needed_as(path: str, needed: Iterable[str]) -> str:
    """Return the one of the names `needed`, which a file has for its libraries, that is the name of
    the library at `path`, or an empty string. A library without a soname has the name by which the
    file's link named it, which may be a path."""
    soname = read_dependency(path).soname
    found = (n for n in needed if (n == soname if soname else os.path.basename(n) == os.path.basename(path)))
    return next(found, "")


def has_lto(path: str | Path) -> bool:
    """Return whether an object, or one in an archive, is one of LTO."""
    return any(_names_in(data, str(path)).is_lto for _, data in members(path))


def read_section(path: str | Path, name: str) -> bytes | None:
    return _mapped(path).named(name)


def section_offset(path: str | Path, name: str) -> int | None:
    """Return where in the file the named section begins, or None if the file has none."""
    return next((s.offset for s in _mapped(path).sections if s.name == name), None)


def _mapped(path: str | Path) -> ElfImage:
    """Map the file without reading all of it: a library may have gigabytes of code."""
    with _opened(path) as f:
        size = os.fstat(f.fileno()).st_size
        return ElfImage(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) if size else b"", str(path))


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """Turn errors from damaged bytes that are read in here into `FormatError`."""
    try:
        yield
    except (struct.error, LookupError, ValueError, OverflowError) as e:
        raise FormatError(f"{where}: damaged ELF file ({e})", "build it again") from e


def deferred_records(
    path: str | Path, image: ElfImage | None = None
) -> tuple[list[CompileCommand], frozenset[CompileCommand]]:
    """Return the records that the shim left in a deferred object, or in members of an archive, and
    those that are alone in their deferred object. `image` may be the object's."""
    found: list[CompileCommand] = []
    alone: set[CompileCommand] = set()
    for each in [image] if image else _images_in(path):
        records = _records_of(each)
        if len(records) == 1 and each.is_deferred:
            alone.update(records)
        found += records
    return found, frozenset(alone)


def _images_in(path: str | Path) -> Iterator[ElfImage]:
    for name, data in members(path):
        if data[:4] == b"\x7fELF":
            yield ElfImage(data, f"{path}({name})" if name else str(path))


def records_in(data: bytes, where: str | Path) -> list[CompileCommand]:
    return _records_of(ElfImage(data, str(where))) if data[:4] == b"\x7fELF" else []


def _records_of(image: ElfImage) -> list[CompileCommand]:
    records = image.named(abi.RECORD_SECTION) or b""
    return [r for r in decode_records(records, image.where) if isinstance(r, CompileCommand)]


def members(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """Return (name, content) of an archive's objects, or of the object itself, without a name."""
    return ((name, data) for name, _, data in placed_members(path))


def placed_members(path: str | Path) -> Iterator[tuple[str, int, bytes]]:
    """Return what `members` does, with the offsets in the file. They are 0 in a thin archive."""
    return _objects_in(path) if kind(path) == "archive" else iter([("", 0, _read(path))])


def is_thin(path: str | Path) -> bool:
    """Return whether a file is an archive that only names its members."""
    with Path(path).open("rb") as f:
        return f.read(8) == _THIN


def write_archive(path: Path, content: Iterable[tuple[str, bytes]]) -> None:
    """Make a GNU archive of the objects (name, content), with a table of symbols for linkers."""
    members = [(os.path.basename(name), data) for name, data in content]
    symbols = [sorted(map(os.fsencode, _names_in(data, name).defined)) for name, data in members]
    names = b"".join(os.fsencode(name) + b"/\n" for name, _ in members)
    table = sum(4 + len(s) + 1 for found in symbols for s in found) + 4
    at, name_at = 8 + 60 + _even(table) + 60 + _even(len(names)), 0
    offsets, rows = [], []
    for (name, data), found in zip(members, symbols, strict=True):
        offsets += [at] * len(found)
        rows.append((f"/{name_at}", data))
        at += 60 + _even(len(data))
        name_at += len(os.fsencode(name)) + 2
    index = struct.pack(f">{len(offsets) + 1}I", len(offsets), *offsets)
    index += b"".join(s + b"\0" for found in symbols for s in found)
    with path.open("wb") as f:
        f.write(_AR)
        for header, data in [("/", index), ("//", names), *rows]:
            f.write(f"{header:<16}{0:<12}{0:<6}{0:<6}{0o644:<8o}{len(data):<10}`\n".encode() + data)
            f.write(b"\n" * (len(data) & 1))


def _even(size: int) -> int:
    return size + (size & 1)


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file that the build made. Raises `BuildError`."""
    try:
        # A thin archive names its members: this must not block on a FIFO.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as f:
            yield f
    except OSError as e:
        raise BuildError(f"cannot read {str(path)!r}: {e.strerror}", "check that the build makes this file") from e


def _read(path: str | Path) -> bytes:
    with _opened(path) as f:
        if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):  # such as a device, which has no end
            raise BuildError(f"cannot read {str(path)!r}: not a plain file", "check what the build makes there")
        return f.read()


def _names_in(data: bytes, where: str) -> SymbolNames:
    if data[:4] in _BITCODE:
        return SymbolNames(is_lto=True)
    image = ElfImage(data, where)
    every = image.symbols()
    table = [s for s in every if s.name and s.binding != "LOCAL"]
    own = [s for s in table if s.section != _SHN_UNDEF]
    return SymbolNames(
        defined=frozenset(s.name for s in own),
        undefined=frozenset(s.name for s in table if s.section == _SHN_UNDEF),
        strong=frozenset(s.name for s in own if s.binding == "GLOBAL"),
        hidden=frozenset(s.name for s in own if s.hidden),
        asked_for=frozenset(s.name for s in table if s.section == _SHN_UNDEF and s.binding != "WEAK"),
        functions=frozenset(s.name for s in own if s.type in _FUNCTIONS),
        unique=frozenset(s.name for s in own if s.binding == "UNIQUE"),
        has_startup=any(s.name.startswith(_STARTUP) for s in image.sections),
        resolved=frozenset(s.name for s in every if s.type == "IFUNC" and s.section != _SHN_UNDEF),
        is_deferred=image.is_deferred,
        is_lto=image.is_lto,
    )


def _long_name(f: BinaryIO, name: str, size: int, long_names: bytes) -> str | None:
    """Return the name of a member that does not stand in its header, or None if it does."""
    if name.startswith("#1/") and name[3:].isdecimal():
        raw = f.read(min(int(name[3:]), size)).rstrip(b"\0")
    elif name[:1] == "/" and name[1:].isdecimal():
        at = int(name[1:])
        raw = long_names[at : long_names.index(b"\n", at)].rstrip(b"/")
    else:
        return None
    return raw.decode("utf-8", "surrogateescape")


def _objects_in(path: str | Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield (name, offset, content) of the ELF and bitcode members of any kind of archive."""
    where = Path(path)
    with where.open("rb") as f:
        file_size = os.fstat(f.fileno()).st_size
        magic = f.read(8)
        if magic not in (_AR, _THIN):
            raise FormatError(f"{path}: not an ar archive")
        long_names = b""
        while len(header := f.read(60)) == 60:
            digits = header[48:58].rstrip(b" ")
            if header[58:60] != b"`\n" or not digits.isdigit():  # a negative size would lead back, without end
                raise FormatError(f"{path}: damaged archive", "build it again")
            name, size = header[:16].decode("utf-8", "surrogateescape").rstrip(), int(digits)
            end = f.tell() + size
            if magic == _AR and end > file_size:
                raise FormatError(f"{path}: archive cut short", "build it again")
            is_table = name in ("/", "//", "/SYM64/") or name.startswith("__.SYMDEF")
            if name == "//":
                long_names = f.read(size)
            elif not is_table:
                with _reading(str(path)):
                    long_name = _long_name(f, name, size, long_names)
                name = name.rstrip("/") if long_name is None else long_name
                if "\0" in name:
                    raise FormatError(f"{path}: damaged archive", "build it again")
                if magic == _THIN:
                    at, data, end = 0, _read(where.parent / name), f.tell()
                else:
                    at = f.tell()
                    data = f.read(end - at)
                if data[:4] == b"\x7fELF" or data[:4] in _BITCODE:
                    yield name, at, data
            f.seek(end + (end & 1))
