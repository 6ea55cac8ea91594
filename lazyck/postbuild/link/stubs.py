"""Renders the assembler text of a lazy library's stubs, slots and embedded manifest, without I/O.

Every stub stands under the mangled name of a blob's function and jumps through its slot. A slot
starts out pointing at its slow path, which hands the slot's number to the trampoline of the runtime
(`stub_<machine>.S`). Names are always quoted, so that any name of an ELF string table assembles.

A library with host units also has wrappers of functions of the GPU runtimes. A kernel's handle is
registered when its library is loaded. Its first use goes through one of these functions. The
wrapper has the kernel's device code made ready (`runtime/src/library/kernels.cpp`), and jumps on. A
handle that is ready costs six instructions.
"""

import platform
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from lazyck import abi
from lazyck.errors import BuildError
from lazyck.machines import MACHINES, Machine
from lazyck.postbuild.objects.assembly import symbol, text
from lazyck.postbuild.objects.reveal import AT_EXIT, plain_name, private_name
from lazyck.toolchains import gpu_runtimes


def render_stubs(
    symbols: Sequence[str],
    manifest_file: str,
    machine: str = "",
    aliases: Mapping[str, str] = MappingProxyType({}),
    *,
    tag: str = "",
    exported: Mapping[str, str] = MappingProxyType({}),
    device_symbols: int = 0,
    wrapped: Sequence[str] = (),
    used: Sequence[str] = (),
    at_exit: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return assembler text with one stub per symbol, as the manifest has them. Slot numbers follow
    the order of `symbols`. A symbol that `aliases` maps to another is one more name of the other's
    stub. Behind the slots of `symbols` are those of `device_symbols`, for which nothing stands.
    `wrapped` are the functions of GPU runtimes that get wrappers. The library refers to what is
    `used`, if there is such a thing: then the linker of a program that defines it exports it, as it
    does for a library that was linked ahead of time. `at_exit` maps functions of `AT_EXIT` to
    the names by which blobs reach the runtime's.

    A private name (see reveal.py), which is made with the library's `tag`, stands beside the plain
    one, which is hidden unless `exported` has another visibility for it. `manifest_file` is
    embedded by `.incbin` when the text is assembled. Raises `BuildError` for a machine (default:
    this one) without a renderer, and for a name that no assembler line can hold.
    """
    machine = machine or platform.machine()
    machine_code = MACHINES.get(machine)
    if machine_code is None:
        known = ", ".join(sorted(MACHINES))
        raise BuildError(f"lazyck has no stubs for machine {machine!r}", f"build for one of: {known}")
    code = _render_code([plain_name(s) for s in symbols], aliases, machine_code)
    for alias, target in ((_quote(a), _quote(t)) for a, t in aliases.items()):
        code += [f" .globl {alias}", f" .set {alias},{target}"]
    for name in (plain_name(s) for s in symbols if plain_name(s) != s):
        plain, private = _quote(name), _quote(private_name(name, tag))
        code += [f" .globl {private}", f" .type {private},@function", f" .set {private},{plain}"]
        visibility = exported.get(name, "hidden")
        code += [] if visibility == "default" else [f" .{visibility} {plain}"]
    if at_exit:
        code.append(' .section .text.lazyck_stubs,"ax",@progbits')
    for name, private in at_exit.items():
        code += [" .p2align 4", *symbol(private, "function", ""), machine_code.landing]
        code += _branch(machine_code, AT_EXIT[name])
    slots = len(symbols) + device_symbols
    code += [*render_wrappers(wrapped, slots, machine_code), *_render_slots(len(symbols), device_symbols)]
    code += [f" .weak {_quote(name)}\n .quad {_quote(name)}" for name in used]
    return "\n".join([machine_code.assembler_options, *code, *_render_data(slots, manifest_file), ""])


def render_note(manifest_file: str, machine: str) -> str:
    """Return assembler text with the manifest alone, for a library without lazy blobs. The section
    is never loaded. An empty root keeps GNU ld from discarding it under --gc-sections."""
    section = f' .section {abi.MANIFEST_SECTION},"",@progbits'
    mark = _render_protection(MACHINES[machine]) if machine in MACHINES else []
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


def _render_code(symbols: Sequence[str], aliases: Container[str], code: Machine) -> list[str]:
    out = [' .section .text.lazyck_stubs,"ax",@progbits', " .p2align 4", " .cfi_startproc"]
    for i, name in ((i, _quote(s)) for i, s in enumerate(symbols) if s not in aliases):
        jump = text(code.through_slot, slot=f"{abi.SYMBOL_SLOTS}+{8 * i}")
        out += [code.align, *symbol(name, "function", ""), code.landing, jump, f" .size {name},{code.stub_size}"]
    out += [code.align, " .cfi_endproc", " .p2align 4", ".Llazyck_slow:", " .cfi_startproc", code.row_unwinding]
    for i in range(len(symbols)):
        out += [code.align, code.landing, text(code.tell, i), f"{code.branch} {abi.SYMBOL_TRAMPOLINE}"]
    out += [code.align, " .cfi_endproc", f" .hidden {abi.SYMBOL_TRAMPOLINE}"]
    return [line for line in (*out, *_render_protection(code)) if line]


def _render_protection(code: Machine) -> list[str]:
    if not code.protection:
        return []
    return [
        ' .section .note.gnu.property,"a",@note',
        " .p2align 3",
        " .long 4,16,5",
        ' .asciz "GNU"',
        f" .long {code.protection:#x},4,3,0",
    ]


def _render_slots(count: int, device_symbols: int) -> list[str]:
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
        *symbol(abi.SYMBOL_MARK, "object", ""),
        f" .size {abi.SYMBOL_MARK},1",
        *symbol(abi.SYMBOL_MANIFEST, "object"),
        f" .incbin {_quote(manifest_file)}",
        f" .size {abi.SYMBOL_MANIFEST},.-{abi.SYMBOL_MANIFEST}",
        *symbol(abi.SYMBOL_MANIFEST_END, "object"),
        " .byte 0",
        ' .section .note.GNU-stack,"",@progbits',
    ]


# The runtime's functions that stand for those that register, by role (`abi.REGISTER_...`).
_REGISTERING = (
    "lazyck_register_image", "lazyck_register_end", "lazyck_unregister_image", "lazyck_register_function",
    "lazyck_register_variable", "lazyck_register_managed", "lazyck_initialize_module",
)  # fmt: skip
_ALWAYS_CALLED = (abi.REGISTER_IMAGE, abi.UNREGISTER_IMAGE, abi.REGISTER_FUNCTION)


def render_wrappers(names: Sequence[str], slots: int, code: Machine) -> list[str]:
    """Return the text of the wrappers of `names`, and of their tables, behind so many slots."""
    rows = gpu_runtimes.GPU_RUNTIMES
    handles = [(n, gpu.wrapped[n]) for n in names for gpu in rows if n in gpu.wrapped]
    registering = {n: gpu.registering[n] for n in names for gpu in rows if n in gpu.registering}
    out = [' .section .text.lazyck_wrappers,"ax",@progbits', " .cfi_startproc"]
    for name, role in registering.items():
        target = _REGISTERING[role]
        out += [*_wrapper(name), code.landing, *_branch(code, target)]
    for i, (name, how) in enumerate(handles):
        number, real = slots + i, f"{abi.SYMBOL_WRAPPED}+{8 * 2 * i}"
        out += [*_wrapper(name), code.landing]
        if how.kind == abi.HANDLE_ITSELF:
            handle, low = code.arguments[how.argument]
            out += [text(code.ready, number, handle=handle, low=low, real=real), f".Llazyck_use{number}:"]
        # The slow path is that of a stub.
        slow = [text(code.tell, number), f"{code.branch} {abi.SYMBOL_TRAMPOLINE}"]
        if code.pushed:
            slow.insert(1, f" .cfi_adjust_cfa_offset {code.pushed}")
            slow = [" .cfi_remember_state", *slow, " .cfi_restore_state"]
        out += slow
    out += [" .cfi_endproc", ' .section .data.rel.ro.lazyck_wrapped,"aw",@progbits', " .p2align 3"]
    out += [*symbol(abi.SYMBOL_WRAPPED, "object")]
    for name, how in handles:
        # The symbol is weak: this release of the runtime may lack what only blobs might call.
        real = f"__real_{name}"
        out += [f" .weak {real}", f" .quad {real}", f" .short {how.argument},{how.kind}", f" .long {how.place}"]
    by_role = {role: name for name, role in registering.items()}
    if len(by_role) < len(registering):
        raise BuildError(
            "one library has kernels for two GPU runtimes", "name the sources of one of them with --kernels"
        )
    out += [*symbol(abi.SYMBOL_REGISTERING, "object")]
    # The library itself needs what every source with device code calls, as it would ahead of time.
    # The other functions are weak, since perhaps only blobs call them.
    out += [f" .weak __real_{name}" for role, name in by_role.items() if role not in _ALWAYS_CALLED]
    out += [f" .quad __real_{by_role[i]}" if i in by_role else " .quad 0" for i in range(len(_REGISTERING))]
    return out


def _branch(code: Machine, target: str) -> list[str]:
    return [f"{code.branch} {target}", f" .hidden {target}"]


def _wrapper(name: str) -> list[str]:
    return [" .p2align 4", *symbol(f"__wrap_{name}", "function")]
