"""What a blob's real host-only object says: its functions, and whether it must be compiled eagerly."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from lazyck.postbuild.elf import ElfImage, Symbol
from lazyck.postbuild.probe_unit import kernel_handle

# Data that toolchains add to every object with kernels.
_TOOLCHAIN_DATA = re.compile(r"__hip_(gpubin_handle|cuid|fatbin|module)|__cuda|__fatbin|__NV_|_ZL\d+__(nv|cuda)")
_START_UP = re.compile(
    r"_GLOBAL__(sub_)?I_|__cxx_global_var_init|__cxx_global_array_|_Z\d+__static_initialization_and_destruction_0"
)
# The toolchain's registration and <iostream>.
_HARMLESS = re.compile(
    r"_ZNSt8ios_base4Init[CD][12]Ev|_ZStL8__ioinit|__cxa_atexit|atexit|__dso_handle|__(hip|cuda)|_ZL\d+__(cuda|nv|sti____cuda)|"
    r"\.L|__fatbin|_GLOBAL_OFFSET_TABLE_|__device_stub__|_ZZL?\d+__(nv|cuda)|__nv"
)
# nvcc 12 makes kernels of unnamed namespaces global, under a name that holds a digest of the file's.
_UNNAMED = re.compile(r"\d_GLOBAL__N_")
_UNDEFINED, _RESERVED = 0, 0xFF00


def is_start_up(name: str) -> bool:
    """Whether start-up code runs through the function `name`: it is looked into, rather than held against the blob."""
    return _START_UP.match(name) is not None


def is_harmless(name: str) -> bool:
    """Whether start-up code of every file may refer to `name`."""
    return _HARMLESS.match(name) is not None


@dataclass(frozen=True)
class Judgement:
    """`reason` is "" for a blob that may be compiled lazily. `weak` are those of `symbols` that may be there only
    because the compile was not optimized; `needs` what the blob leaves undefined."""

    symbols: tuple[str, ...]
    unreachable: tuple[str, ...]
    reason: str
    weak: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()


def judge(image: ElfImage, suspects: tuple[str, ...], *, own_initializers: bool) -> Judgement:
    """Judge a blob by its object. `own_initializers`: whether code that runs at load would be the blob's own rather
    than its headers'; `suspects`: the variables that may be behind it."""
    table = image.symbols()
    symbols: list[str] = []
    unreachable: list[str] = []
    data: list[str] = []
    weak: set[str] = set()
    needs = frozenset(s.name for s in table if s.section == _UNDEFINED and s.name and s.binding != "LOCAL")
    handles = {kernel_handle(s.name) for s in table if s.type == "FUNC" and "__device_stub__" in s.name}
    for s in table:
        if s.binding == "LOCAL" or s.section == _UNDEFINED or not s.name:
            continue
        if s.type in ("FUNC", "IFUNC"):
            if _UNNAMED.search(s.name):
                continue
            (unreachable if s.hidden else symbols).append(s.name)
            if s.binding == "WEAK":
                weak.add(s.name)
        elif s.name in handles:
            unreachable.append(s.name)
        elif s.binding == "GLOBAL" and not _TOOLCHAIN_DATA.match(s.name):
            data.append(s.name)
    if data:
        return Judgement((), (), "defines data: " + ", ".join(data[:3]))
    if own_initializers:
        called = _initializer_calls(image, table)
        if called:
            return Judgement((), (), "has an initializer of its own: " + ", ".join((suspects or tuple(called))[:3]))
    return Judgement(tuple(symbols), tuple(unreachable), "", frozenset(weak), needs)


def _x86_64_calls(code: bytes) -> Iterator[int]:
    """Where the calls (`call rel32`) in `code` lead to, counted from its start; may find some that are none."""
    for i, byte in enumerate(code[:-4]):
        if byte == 0xE8:
            yield i + 5 + int.from_bytes(code[i + 1 : i + 5], "little", signed=True)


def _aarch64_calls(code: bytes) -> Iterator[int]:
    """The same for `bl` and `b`, which a tail call is: 26 bits that count instructions."""
    for i, (word,) in enumerate(struct.iter_unpack("<I", code[: len(code) & ~3])):
        if word & 0x7C000000 == 0x14000000:
            distance = word & 0x3FFFFFF
            yield 4 * (i + distance - (distance >> 25 << 26))


_CALLS = {"x86_64": _x86_64_calls, "aarch64": _aarch64_calls}


def _initializer_calls(image: ElfImage, table: list[Symbol]) -> list[str]:
    """Names that the object's start-up and tear-down code refers to, apart from what every object's does."""
    functions: dict[int, list[Symbol]] = {}
    for s in table:
        if s.type == "FUNC" and s.section not in (_UNDEFINED,) and s.section < len(image.sections):
            functions.setdefault(s.section, []).append(s)

    def function_at(section: int, offset: int) -> Symbol | None:
        return next((f for f in functions.get(section, ()) if f.value <= offset < f.value + max(f.size, 1)), None)

    def targets(section: int, low: int, high: int) -> list[tuple[Symbol, int]]:
        return [(table[s], a) for o, s, a in image.relocations(section) if low <= o < high]

    def local_calls(f: Symbol) -> list[tuple[Symbol, int]]:
        # the assembler settles calls within a section by itself and leaves no relocation
        code = image.content(image.sections[f.section])[f.value : f.value + f.size]
        starts = {g.value: g for g in functions[f.section]}
        return [(starts[f.value + at], 0) for at in _CALLS[image.machine](code) if f.value + at in starts]

    found: dict[str, None] = {}
    todo: list[tuple[Symbol, int]] = []
    for i, section in enumerate(image.sections):
        if re.match(r"\.(init_array|fini_array|ctors|dtors|preinit_array)\b", section.name):
            todo += targets(i, 0, section.size)
    seen: set[tuple[int, int]] = set()
    while todo:
        target, addend = todo.pop()
        where = target
        if target.type == "SECTION":
            inside = function_at(target.section, addend)
            if inside is None:
                # a variable, by its section: only code counts. x86-64's call through .text + addend is off by the
                # width of its operand
                inside = function_at(target.section, addend + 4) if image.machine == "x86_64" else None
            if inside is None:
                continue
            where = inside
        if where.type == "FUNC" and where.section != _UNDEFINED and is_start_up(where.name):
            if (where.section, where.value) not in seen:
                seen.add((where.section, where.value))
                todo += targets(where.section, where.value, where.value + where.size) + local_calls(where)
        elif where.type in ("OBJECT", "TLS") and where.section != _UNDEFINED and where.binding == "LOCAL":
            continue  # the object's own variables are what start-up code is about
        elif not is_harmless(where.name):
            found[where.name] = None
    return list(found)
