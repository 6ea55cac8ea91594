"""Read the machine code of kernels from objects and libraries for NVIDIA's and AMD's devices, and
compare two versions of a kernel."""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_ELF = bytes.fromhex("7f454c460201")
_NVIDIA, _AMD = 190, 224  # ELF machines
_SHT_SYMTAB, _SHT_RELA, _SHT_REL, _SHT_DYNSYM = 2, 4, 9, 11
_STT_FUNC = 2
# Since sm_90 each block's shared memory begins with this many reserved bytes. The section of a
# kernel's shared memory counts them. It exists if the kernel has shared memory, or if any kernel of
# the file has a shared array without a size.
_RESERVED = 1024
_REGISTER_COUNT = 0x2F
_DESCRIPTOR = ".kd"
_UNIQUE = re.compile(r"(\d+)(_GLOBAL__N_|_INTERNAL_)")  # the length and the beginning of an unnamed namespace's name
_ENTRY_OFFSET = slice(16, 24)  # the field of a descriptor with the distance from there to the code


@dataclass(frozen=True)
class Code:
    """Holds a kernel's machine code.

    `step` is the size of the pieces in which addresses stand, `places` has the numbers of those
    pieces that have one. `needs` has what else a launch is told: registers, constants, sizes of
    memory.
    """

    text: bytes
    step: int
    places: frozenset[int]
    needs: tuple[int, bytes, int]


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    address: int
    size: int
    content: bytes  # at most the part that the image contains
    link: int
    info: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    kind: int
    section: int
    value: int
    size: int


def kernels(path: Path) -> dict[str, Code]:
    """Return each kernel's code by its `plain_name`, from all images in a file."""
    found: dict[str, Code] = {}
    for image in _images(path.read_bytes()):
        machine = struct.unpack_from("<H", image, 18)[0]
        of_image = (_of_nvidia if machine == _NVIDIA else _of_amd)(list(_sections(image)))
        found.update({plain_name(name): code for name, code in of_image.items()})
    return found


def plain_name(symbol: str) -> str:
    """Return a mangled name without the parts that make unnamed namespaces of different sources
    differ."""
    plain, at = "", 0
    while found := _UNIQUE.search(symbol, at):
        plain += symbol[at : found.start()] + "(unnamed)"
        at = found.start(2) + int(found[1])
    return plain + symbol[at:]


def difference(unit: Code, whole: Code) -> str:
    """Return how two versions of a kernel differ: an empty string if their bytes are equal,
    "addresses" or "other".

    "addresses" means that instructions differ only in where strings and variables lie, or in where
    constant bank 4 has these addresses.
    """
    if unit.needs != whole.needs or len(unit.text) != len(whole.text):
        return "other"
    if unit.text == whole.text:
        return ""
    step = unit.step
    rows = [(unit.text[i : i + step], whole.text[i : i + step], i // step) for i in range(0, len(unit.text), step)]

    def is_bank_4(row: bytes) -> bool:
        return step == 16 and int.from_bytes(row[4:8], "little") >> 22 == 4

    moves = any(is_bank_4(b) for _, b, _ in rows)
    for mine, theirs, i in rows:
        if mine == theirs or (i in unit.places and i in whole.places):
            continue
        same_rest = step == 16 and mine[:4] == theirs[:4] and mine[8:] == theirs[8:]
        is_move = moves and int.from_bytes(mine[:4], "little") & 0xFFF == 0x802
        if not same_rest or not (is_move or (is_bank_4(mine) and is_bank_4(theirs))):
            return "other"
    return "addresses"


def _images(data: bytes) -> Iterator[bytes]:
    at = data.find(_ELF)
    while at >= 0:
        if len(data) >= at + 64 and struct.unpack_from("<H", data, at + 18)[0] in (_NVIDIA, _AMD):
            yield data[at:]
        at = data.find(_ELF, at + 1)


def _sections(image: bytes) -> Iterator[_Section]:
    (at,), (count, names) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<2H", image, 60)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, at + 64 * i) for i in range(count)]
    for name, kind, _, address, offset, size, link, info, *_ in heads:
        begin = heads[names][4] + name
        yield _Section(
            image[begin : image.index(0, begin)].decode(),
            kind,
            address,
            size,
            image[offset : offset + size],
            link,
            info,
        )


def _symbols(sections: Sequence[_Section], kind: int) -> list[_Symbol]:
    (table,) = [s for s in sections if s.kind == kind]
    names = sections[table.link].content
    found = []
    for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", table.content):
        found.append(_Symbol(names[name : names.index(0, name)].decode(), info & 15, section, value, size))
    return found


def _of_nvidia(sections: Sequence[_Section]) -> dict[str, Code]:
    lead = ".text."
    texts = {i: s.name.removeprefix(lead) for i, s in enumerate(sections) if s.name.startswith(lead)}
    named = {s.name: s for s in sections}

    def content(name: str) -> bytes:
        return named[name].content if name in named else b""

    places: dict[int, set[int]] = {i: set() for i in texts}
    for s in sections:
        if s.kind in (_SHT_RELA, _SHT_REL) and s.info in texts:
            step = 24 if s.kind == _SHT_RELA else 16
            places[s.info] |= {struct.unpack_from("<Q", s.content, k)[0] // 16 for k in range(0, len(s.content), step)}
    counts = _registers(content(".nv.info"))
    numbers = {symbol.name: number for number, symbol in enumerate(_symbols(sections, _SHT_SYMTAB))}
    found = {}
    for i, name in texts.items():
        shared = named[f".nv.shared.{name}"].size - _RESERVED if f".nv.shared.{name}" in named else 0
        needs = (counts.get(numbers.get(name, 0), 0), content(f".nv.constant2.{name}"), shared)
        found[name] = Code(sections[i].content, 16, frozenset(places[i]), needs)
    return found


def _registers(notes: bytes) -> dict[int, int]:
    """Return how many registers each kernel takes, by its symbol's number, from `.nv.info`, which
    covers all kernels."""
    found = {}
    at = 0
    while at + 4 <= len(notes):
        form, attribute, size = struct.unpack_from("<BBH", notes, at)
        at += 4
        if form == 4:
            if attribute == _REGISTER_COUNT:
                number, count = struct.unpack_from("<II", notes, at)
                found[number] = count
            at += size
    return found


def _of_amd(sections: Sequence[_Section]) -> dict[str, Code]:
    symbols = {s.name: s for s in _symbols(sections, _SHT_DYNSYM)}

    def content(symbol: _Symbol) -> bytes:
        section = sections[symbol.section]
        begin = symbol.value - section.address
        return section.content[begin : begin + symbol.size]

    found = {}
    for name, symbol in symbols.items():
        if symbol.kind != _STT_FUNC or f"{name}{_DESCRIPTOR}" not in symbols:
            continue
        text, descriptor = content(symbol), bytearray(content(symbols[f"{name}{_DESCRIPTOR}"]))
        descriptor[_ENTRY_OFFSET] = bytes(8)
        found[name] = Code(text, 4, frozenset(_distances(text)), (0, bytes(descriptor), 0))
    return found


def _distances(text: bytes) -> Iterator[int]:
    """Yield the numbers of the words that hold the distance to something in the image: the literals
    of the sums of addresses that follow `s_getpc_b64`."""
    words = struct.unpack(f"<{len(text) // 4}I", text[: len(text) // 4 * 4])
    for i, word in enumerate(words):
        if word & 0xFF80FF00 != 0xBE801C00:
            continue
        at = i + 1
        while at <= i + 4 and at + 1 < len(words):
            is_sum = words[at] >> 23 in (0x100, 0x104, 0x105)  # s_add_u32, s_addc_u32
            has_literal = is_sum and words[at] >> 8 & 0xFF == 0xFF
            if has_literal:
                yield at + 1
            at += 1 + has_literal
