"""Renders the assembler text of a lazy library's stubs, slots and embedded manifest. There is no
I/O here.

Every stub stands under the mangled name of a blob's function and jumps through its slot. A slot
starts out pointing at its slow path, which hands the slot's number to the trampoline of the runtime
(`stub_<machine>.S`). Names are always quoted, so that any name that an ELF string table can hold
assembles. To add a machine, add one renderer to `_RENDERERS` and one trampoline.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType

from _lazyck import abi
from _lazyck.errors import BuildError
from _lazyck.postbuild.link.handles import render_wrappers
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
    renderer = _RENDERERS.get(machine)
    if renderer is None:
        known = ", ".join(sorted(_RENDERERS))
        raise BuildError(f"lazyck has no stubs for machine {machine!r}", f"build for one of: {known}")
    plain = [line for s in symbols if plain_name(s) != s for line in _render_plain(_quote(plain_name(s)), _quote(s))]
    code = [*renderer(symbols, aliases), *_render_aliases(aliases), *plain]
    slots = len(symbols) + device_symbols
    code += [*render_wrappers(wrapped, slots, machine), *_render_slots(len(symbols), device_symbols)]
    return "\n".join([*code, *_render_data(slots, manifest_file), ""])


def render_note(manifest_file: str, machine: str) -> str:
    """Return assembler text with the manifest alone, for a library without lazy blobs. The section
    is never loaded. An empty root keeps GNU ld from discarding it under --gc-sections."""
    section = f' .section {abi.MANIFEST_SECTION},"",@progbits'
    mark = _render_property(_PROPERTIES[machine]) if machine in _PROPERTIES else []
    root, stack = ' .section .init_array,"aw",@init_array', ' .section .note.GNU-stack,"",@progbits'
    return "\n".join([section, f" .incbin {_quote(manifest_file)}", *mark, root, stack, ""])


def render_deferred() -> str:
    """Return assembler text that defines what deferred objects ask for, so that a lazy link may
    have some among its inputs."""
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


# These are the kinds of notes that say which protections of branches and stacks the code supports.
_PROPERTIES = {"x86_64": 0xC0000002, "aarch64": 0xC0000000}


def _hidden(name: str, kind: str) -> list[str]:
    return [f" .globl {name}", f" .hidden {name}", f" .type {name},{kind}"]


# Both code areas have rows of 16 bytes, so that one unwind entry each describes all of them, and
# 20,000 stubs do not add 20,000 entries. The second entry is the formula that linkers use for PLTs:
# the CFA is rsp + 8, and 8 more once the row's push is done (its first 9 bytes are endbr64 and
# push).
_X86_64_SLOW_PATH_CFA = ".cfi_escape 0x0f,11,0x77,8,0x80,0,0x3f,0x1a,0x39,0x2a,0x33,0x24,0x22"


def _render_x86_64(symbols: Sequence[str], aliases: Container[str]) -> list[str]:
    out = [' .section .text.lazyck_stubs,"ax",@progbits', " .p2align 4", " .cfi_startproc"]
    for i, symbol in ((i, s) for i, s in enumerate(symbols) if s not in aliases):
        name = _quote(symbol)
        out += [
            " .p2align 4",
            f" .globl {name}",
            f" .type {name},@function",
            f"{name}:",
            " endbr64",
            f" jmp *{abi.SYMBOL_SLOTS}+{8 * i}(%rip)",
            f" .size {name},10",
        ]
    out += [" .p2align 4", " .cfi_endproc", ".Llazyck_slow:", " .cfi_startproc", f" {_X86_64_SLOW_PATH_CFA}"]
    for i in range(len(symbols)):
        # Push has the long form for every number, since rows must be alike for the unwind formula.
        out += [" .p2align 4", " endbr64", " .byte 0x68", f" .long {i}", f" jmp {abi.SYMBOL_TRAMPOLINE}"]
    out += [" .p2align 4", " .cfi_endproc", f" .hidden {abi.SYMBOL_TRAMPOLINE}"]
    # The code is fit for IBT and shadow stacks, so that a link with -z ibt or -z cet-report finds
    # no fault.
    return [*out, *_render_property(_PROPERTIES["x86_64"])]


def _render_aarch64(symbols: Sequence[str], aliases: Container[str]) -> list[str]:
    out = [' .section .text.lazyck_stubs,"ax",@progbits', " .p2align 4", " .cfi_startproc"]
    for i, symbol in ((i, s) for i, s in enumerate(symbols) if s not in aliases):
        name, slot = _quote(symbol), f"{abi.SYMBOL_SLOTS}+{8 * i}"
        # `ldar` is needed because whoever sees the function's address must also see what the loader
        # wrote into the blob's data, and on this machine a branch alone does not order that. `hint
        # 34` is `bti c`.
        out += [
            f" .globl {name}",
            f" .type {name},@function",
            f"{name}:",
            " hint 34",
            f" adrp x16,{slot}",
            f" add x16,x16,:lo12:{slot}",
            " ldar x16,[x16]",
            " br x16",
            f" .size {name},20",
        ]
    out += [" .cfi_endproc", " .p2align 4", ".Llazyck_slow:", " .cfi_startproc"]
    for i in range(len(symbols)):
        # w17 is used, since a linker's veneer on the way to the trampoline uses x16.
        out += [" hint 34", f" mov w17,{i & 0xFFFF}", f" movk w17,{i >> 16},lsl 16", f" b {abi.SYMBOL_TRAMPOLINE}"]
    out += [" .cfi_endproc", f" .hidden {abi.SYMBOL_TRAMPOLINE}"]
    # The code is fit for branch target identification and for signed return addresses.
    return [*out, *_render_property(_PROPERTIES["aarch64"])]


def _render_property(kind: int) -> list[str]:
    return [
        ' .section .note.gnu.property,"a",@note',
        " .p2align 3",
        " .long 4,16,5",
        ' .asciz "GNU"',
        f" .long {kind:#x},4,3,0",
    ]


def _render_slots(count: int, device_symbols: int) -> list[str]:
    # The rows of the slow path have 16 bytes on every machine.
    return [
        ' .section .data.rel.lazyck_slots,"aw",@progbits',
        " .p2align 6",
        *_hidden(abi.SYMBOL_SLOTS, "@object"),
        f"{abi.SYMBOL_SLOTS}:",
        *(f" .quad .Llazyck_slow+{16 * i}" for i in range(count)),
        f" .zero {8 * device_symbols}",
        f" .size {abi.SYMBOL_SLOTS},{8 * (count + device_symbols)}",
    ]


def _render_data(slots: int, manifest_file: str) -> list[str]:
    return [
        ' .section .rodata.lazyck_slot_count,"a",@progbits',
        " .p2align 2",
        *_hidden(abi.SYMBOL_SLOT_COUNT, "@object"),
        f"{abi.SYMBOL_SLOT_COUNT}:",
        f" .long {slots}",
        f" .size {abi.SYMBOL_SLOT_COUNT},4",
        f' .section {abi.MANIFEST_SECTION},"a",@progbits',
        " .p2align 3",
        *_hidden(abi.SYMBOL_MANIFEST, "@object"),
        f"{abi.SYMBOL_MANIFEST}:",
        f" .incbin {_quote(manifest_file)}",
        f" .size {abi.SYMBOL_MANIFEST},.-{abi.SYMBOL_MANIFEST}",
        *_hidden(abi.SYMBOL_MANIFEST_END, "@object"),
        f"{abi.SYMBOL_MANIFEST_END}:",
        " .byte 0",
        ' .section .note.GNU-stack,"",@progbits',
    ]


_RENDERERS: dict[str, Callable[[Sequence[str], Container[str]], list[str]]] = {
    "aarch64": _render_aarch64,
    "x86_64": _render_x86_64,
}
