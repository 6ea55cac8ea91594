"""Renders the assembler text of a lazy library's stubs, slots and embedded manifest. There is no
I/O here.

Every stub stands under the mangled name of a blob's function and jumps through its slot. A slot
starts out pointing at its slow path, which hands the slot's number to the trampoline of the runtime
(`stub_<machine>.S`). Names are always quoted, so that any name that an ELF string table can hold
assembles.
"""

import platform
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from _lazyck import abi
from _lazyck.errors import BuildError
from _lazyck.postbuild.link.handles import render_wrappers
from _lazyck.postbuild.objects.machine_code import MACHINE_CODE, MachineCode, symbol, text
from _lazyck.postbuild.private_names import plain_name


def render_stubs(
    symbols: Sequence[str],
    manifest_file: str,
    machine: str = "",
    aliases: Mapping[str, str] = MappingProxyType({}),
    *,
    device_symbols: int = 0,
    wrapped: Sequence[str] = (),
) -> str:
    """Return assembler text with one stub per symbol. Slot numbers follow the order of `symbols`. A
    symbol that `aliases` maps to another is one more name of the other's stub. Behind the slots of
    `symbols` are those of `device_symbols`, for which nothing stands. `wrapped` are the functions
    of GPU runtimes that get wrappers.

    A private name stands beside the plain one. The plain name is exported too, since other blobs
    call it, but it is protected: what an ahead-of-time build hides, no other library may interpose
    in the library's own calls. `manifest_file` is embedded by `.incbin` when the text is assembled.
    Raises `BuildError` for a machine (default: this one) without a renderer, and for a name that no
    assembler line can hold.
    """
    machine = machine or platform.machine()
    machine_code = MACHINE_CODE.get(machine)
    if machine_code is None:
        known = ", ".join(sorted(MACHINE_CODE))
        raise BuildError(f"lazyck has no stubs for machine {machine!r}", f"build for one of: {known}")
    plain = [line for s in symbols if plain_name(s) != s for line in _render_plain(_quote(plain_name(s)), _quote(s))]
    code = [*_render_code(symbols, aliases, machine_code), *_render_aliases(aliases), *plain]
    slots = len(symbols) + device_symbols
    code += [*render_wrappers(wrapped, slots, machine_code), *_render_slots(len(symbols), device_symbols)]
    return "\n".join([*code, *_render_data(slots, manifest_file), ""])


def render_note(manifest_file: str, machine: str) -> str:
    """Return assembler text with the manifest alone, for a library without lazy blobs. The section
    is never loaded. An empty root keeps GNU ld from discarding it under --gc-sections."""
    section = f' .section {abi.MANIFEST_SECTION},"",@progbits'
    mark = _render_protection(MACHINE_CODE[machine]) if machine in MACHINE_CODE else []
    root, stack = ' .section .init_array,"aw",@init_array', ' .section .note.GNU-stack,"",@progbits'
    return "\n".join([section, f" .incbin {_quote(manifest_file)}", *mark, root, stack, ""])


def render_deferred() -> str:
    """Return text that defines what deferred objects ask for, so that a lazy link may have some."""
    name = abi.DEFERRED_SYMBOL
    return "\n".join(
        [" .data", f" .globl {name}", f" .hidden {name}", f"{name}:", ' .section .note.GNU-stack,"",@progbits', ""]
    )


def _quote(text: str) -> str:
    if "\n" in text or "\0" in text:
        raise BuildError(f"{text!r} cannot be written in assembler", "rename it")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _render_plain(name: str, private: str) -> list[str]:
    return [f" .globl {name}", f" .protected {name}", f" .set {name},{private}"]


def _render_aliases(aliases: Mapping[str, str]) -> list[str]:
    named = ((_quote(alias), _quote(target)) for alias, target in aliases.items())
    return [line for alias, target in named for line in (f" .globl {alias}", f" .set {alias},{target}")]


def _render_code(symbols: Sequence[str], aliases: Container[str], code: MachineCode) -> list[str]:
    out = [' .section .text.lazyck_stubs,"ax",@progbits', " .p2align 4", " .cfi_startproc"]
    for i, name in ((i, _quote(s)) for i, s in enumerate(symbols) if s not in aliases):
        jump = text(code.through_slot, slot=f"{abi.SYMBOL_SLOTS}+{8 * i}")
        out += [code.align, *symbol(name, "function", ""), code.landing, jump, f" .size {name},{code.stub_size}"]
    out += [code.align, " .cfi_endproc", " .p2align 4", ".Llazyck_slow:", " .cfi_startproc", code.row_unwinding]
    for i in range(len(symbols)):
        out += [code.align, code.landing, text(code.tell, i), f"{code.branch} {abi.SYMBOL_TRAMPOLINE}"]
    out += [code.align, " .cfi_endproc", f" .hidden {abi.SYMBOL_TRAMPOLINE}"]
    return [line for line in (*out, *_render_protection(code)) if line]


def _render_protection(code: MachineCode) -> list[str]:
    return [
        ' .section .note.gnu.property,"a",@note',
        " .p2align 3",
        " .long 4,16,5",
        ' .asciz "GNU"',
        f" .long {code.protection:#x},4,3,0",
    ]


def _render_slots(count: int, device_symbols: int) -> list[str]:
    # The rows of the slow path have 16 bytes on every machine.
    return [
        ' .section .data.rel.lazyck_slots,"aw",@progbits',
        " .p2align 6",
        *symbol(abi.SYMBOL_SLOTS, "object"),
        *(f" .quad .Llazyck_slow+{16 * i}" for i in range(count)),
        f" .zero {8 * device_symbols}",
        f" .size {abi.SYMBOL_SLOTS},{8 * (count + device_symbols)}",
    ]


def _render_data(slots: int, manifest_file: str) -> list[str]:
    return [
        ' .section .rodata.lazyck_slot_count,"a",@progbits',
        " .p2align 2",
        *symbol(abi.SYMBOL_SLOT_COUNT, "object"),
        f" .long {slots}",
        f" .size {abi.SYMBOL_SLOT_COUNT},4",
        f' .section {abi.MANIFEST_SECTION},"a",@progbits',
        " .p2align 3",
        *symbol(abi.SYMBOL_MANIFEST, "object"),
        f" .incbin {_quote(manifest_file)}",
        f" .size {abi.SYMBOL_MANIFEST},.-{abi.SYMBOL_MANIFEST}",
        *symbol(abi.SYMBOL_MANIFEST_END, "object"),
        " .byte 0",
        ' .section .note.GNU-stack,"",@progbits',
    ]
