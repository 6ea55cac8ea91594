"""Renders the assembler text of a lazy library's stubs, slots and embedded manifest, without I/O.

Every stub stands under the mangled name of a blob's function and jumps through its slot. A slot
starts out pointing at its slow path, which hands the slot's number to the trampoline of the runtime
(`stub_<machine>.S`). Names are always quoted, so that any name of an ELF string table assembles.

A library with host units also has wrappers of functions of the GPU runtimes. A kernel's handle is
registered when its library is loaded. Its first use goes through one of these functions. The
wrapper has the kernel's device code made ready (`runtime/src/library/kernels.cpp`), and jumps on. A
handle that is ready costs six instructions. The launches of nvcc 13's stubs are not wrapped: they
name a kernel that `__cudaGetKernel` was asked for.
"""

import platform
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType

from lazyck import abi
from lazyck.errors import BuildError
from lazyck.postbuild.objects.machine_code import MACHINE_CODE, MachineCode, symbol, text
from lazyck.postbuild.objects.reveal import plain_name


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
    code = _render_code(symbols, aliases, machine_code)
    for alias, target in ((_quote(a), _quote(t)) for a, t in aliases.items()):
        code += [f" .globl {alias}", f" .set {alias},{target}"]
    for plain, private in ((_quote(plain_name(s)), _quote(s)) for s in symbols if plain_name(s) != s):
        code += [f" .globl {plain}", f" .protected {plain}", f" .set {plain},{private}"]
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


_FIRST, _NODE = abi.HANDLE_FIRST, abi.HANDLE_NODE

# The value is the number of the argument that is a handle.
_CUDA_AND_HIP = {
    "FuncGetAttributes": 1, "FuncSetAttribute": 0, "FuncSetCacheConfig": 0, "FuncSetSharedMemConfig": 0,
    "GetFuncBySymbol": 1, "GetSymbolAddress": 1, "GetSymbolSize": 1, "GraphAddMemcpyNodeFromSymbol": 5,
    "GraphAddMemcpyNodeToSymbol": 4, "GraphExecMemcpyNodeSetParamsFromSymbol": 3,
    "GraphExecMemcpyNodeSetParamsToSymbol": 2, "GraphMemcpyNodeSetParamsFromSymbol": 2,
    "GraphMemcpyNodeSetParamsToSymbol": 1, "LaunchCooperativeKernel": 0, "LaunchKernel": 0, "LaunchKernelExC": 1,
    "MemcpyFromSymbol": 1, "MemcpyFromSymbolAsync": 1, "MemcpyToSymbol": 0, "MemcpyToSymbolAsync": 0,
    "OccupancyMaxActiveBlocksPerMultiprocessor": 1, "OccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 1,
    "OccupancyAvailableDynamicSMemPerBlock": 1, "OccupancyMaxActiveClusters": 1, "OccupancyMaxPotentialClusterSize": 1,
}  # fmt: skip
_OF_ONE = {
    "__cudaGetKernel": 1, "cudaFuncGetName": 1, "cudaFuncGetParamInfo": 0, "cudaGetKernel": 1,
    "hipExtLaunchKernel": 0, "hipKernelNameRefByPtr": 0,
    "hipLaunchByPtr": 0, "hipOccupancyMaxPotentialBlockSize": 2,
}  # fmt: skip
# The value is the number of the argument that points to a struct, and the place of the handle in
# that struct.
_CUDA_STRUCTS = {
    "cudaGraphAddKernelNode": (4, _FIRST), "cudaGraphExecKernelNodeSetParams": (2, _FIRST),
    "cudaGraphKernelNodeSetParams": (1, _FIRST), "cudaLaunchCooperativeKernelMultiDevice": (0, _FIRST),
    "cudaGraphExecNodeSetParams": (2, _NODE), "cudaGraphNodeSetParams": (1, _NODE),
}  # fmt: skip
# Since CUDA 13 the function has one more argument, before the number of dependencies. `kernels.cpp`
# tells that number from a pointer.
_ADD_NODE = {"cudaGraphAddNode": (4, _NODE), "cudaGraphAddNode_v2": (5, _NODE)}
_HIP_STRUCTS = {
    "hipExtLaunchMultiKernelMultiDevice": (0, abi.HANDLE_HIP_LIST), "hipGraphAddKernelNode": (4, abi.HANDLE_HIP_KERNEL),
    "hipGraphAddNode": (4, abi.HANDLE_HIP_NODE), "hipGraphExecKernelNodeSetParams": (2, abi.HANDLE_HIP_KERNEL),
    "hipGraphExecNodeSetParams": (2, abi.HANDLE_HIP_NODE), "hipGraphKernelNodeSetParams": (1, abi.HANDLE_HIP_KERNEL),
    "hipGraphNodeSetParams": (1, abi.HANDLE_HIP_NODE),
    "hipLaunchCooperativeKernelMultiDevice": (0, abi.HANDLE_HIP_LIST),
}  # fmt: skip
# Programs that are compiled for a default stream per thread call these functions with a suffix.
_PER_THREAD = {
    "_ptsz": ("cudaLaunchCooperativeKernel", "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyFromSymbolAsync",
              "cudaMemcpyToSymbolAsync"),
    "_ptds": ("cudaMemcpyFromSymbol", "cudaMemcpyToSymbol"),
    "_spt": ("hipLaunchCooperativeKernel", "hipLaunchKernel", "hipMemcpyFromSymbol", "hipMemcpyFromSymbolAsync",
             "hipMemcpyToSymbol", "hipMemcpyToSymbolAsync"),
}  # fmt: skip


# These are the wrapped functions, each with the number of the argument that says the handle, and
# how it does (`abi.HANDLE_...`).
_BY_ARGUMENT = _OF_ONE | {lead + name: n for lead in ("cuda", "hip") for name, n in _CUDA_AND_HIP.items()}
_WRAPPERS = {name: (argument, abi.HANDLE_ITSELF) for name, argument in _BY_ARGUMENT.items()}
_WRAPPERS |= _CUDA_STRUCTS | _ADD_NODE | _HIP_STRUCTS
_WRAPPERS |= {name + end: _WRAPPERS[name] for end, names in _PER_THREAD.items() for name in names}
_REGISTERING = {
    "__cudaRegisterFatBinary": (abi.REGISTER_IMAGE, "lazyck_register_image"),
    "__hipRegisterFatBinary": (abi.REGISTER_IMAGE, "lazyck_register_image"),
    "__cudaRegisterFatBinaryEnd": (abi.REGISTER_END, "lazyck_register_end"),
    "__cudaUnregisterFatBinary": (abi.UNREGISTER_IMAGE, "lazyck_unregister_image"),
    "__hipUnregisterFatBinary": (abi.UNREGISTER_IMAGE, "lazyck_unregister_image"),
    "__cudaRegisterFunction": (abi.REGISTER_FUNCTION, "lazyck_register_function"),
    "__hipRegisterFunction": (abi.REGISTER_FUNCTION, "lazyck_register_function"),
    "__cudaRegisterVar": (abi.REGISTER_VARIABLE, "lazyck_register_variable"),
    "__hipRegisterVar": (abi.REGISTER_VARIABLE, "lazyck_register_variable"),
    "__cudaRegisterManagedVar": (abi.REGISTER_MANAGED, "lazyck_register_managed"),
    "__hipRegisterManagedVar": (abi.REGISTER_MANAGED, "lazyck_register_managed"),
    "__cudaInitModule": (abi.INITIALIZE_MODULE, "lazyck_initialize_module"),
}

# Without one of these, a library has no GPU runtime.
IMAGE_FUNCTIONS = frozenset(name for name, (role, _) in _REGISTERING.items() if role == abi.REGISTER_IMAGE)
_ALWAYS_CALLED = (abi.REGISTER_IMAGE, abi.UNREGISTER_IMAGE, abi.REGISTER_FUNCTION)


def names_of(toolchain: str) -> tuple[str, ...]:
    """Return the functions of a GPU runtime that register device code or take a handle."""
    lead = ("hip", "__hip") if toolchain == abi.TOOLCHAIN_ROCM else ("cuda", "__cuda")
    return tuple(sorted(name for name in (*_WRAPPERS, *_REGISTERING) if name.startswith(lead)))


def wrapped_among(undefined: Iterable[str]) -> tuple[str, ...]:
    """Return those of the symbols `undefined` in a link that are wrapped (`--wrap`), in order."""
    return tuple(sorted(s for s in frozenset(undefined) if s in _WRAPPERS or s in _REGISTERING))


def render_wrappers(names: Sequence[str], slots: int, code: MachineCode) -> list[str]:
    """Return the text of the wrappers of `names`, and of their tables, behind so many slots."""
    handles = [(n, *_WRAPPERS[n]) for n in names if n in _WRAPPERS]
    registering = {n: _REGISTERING[n] for n in names if n in _REGISTERING}
    out = [' .section .text.lazyck_wrappers,"ax",@progbits', " .cfi_startproc"]
    for name, (_, target) in registering.items():
        out += [*_wrapper(name), code.landing, f"{code.branch} {target}", f" .hidden {target}"]
    for i, (name, argument, kind) in enumerate(handles):
        number, real = slots + i, f"{abi.SYMBOL_WRAPPED}+{8 * 2 * i}"
        out += [*_wrapper(name), code.landing]
        if kind == abi.HANDLE_ITSELF:
            handle, low = code.arguments[argument]
            out += [text(code.ready, number, handle=handle, low=low, real=real), f".Llazyck_use{number}:"]
        # The slow path is that of a stub.
        slow = [text(code.tell, number), f"{code.branch} {abi.SYMBOL_TRAMPOLINE}"]
        if code.pushed:
            slow.insert(1, f" .cfi_adjust_cfa_offset {code.pushed}")
            slow = [" .cfi_remember_state", *slow, " .cfi_restore_state"]
        out += slow
    out += [" .cfi_endproc", ' .section .data.rel.ro.lazyck_wrapped,"aw",@progbits', " .p2align 3"]
    out += [*symbol(abi.SYMBOL_WRAPPED, "object")]
    for name, argument, kind in handles:
        # The symbol is weak: this release of the runtime may lack a function that only blobs might
        # call.
        real = f"__real_{name}"
        out += [f" .weak {real}", f" .quad {real}", f" .long {argument},{kind}"]
    by_role = {role: name for name, (role, _) in registering.items()}
    out += [*symbol(abi.SYMBOL_REGISTERING, "object")]
    # The library itself needs what every source with device code calls, as it would ahead of time.
    # The other functions are weak, since perhaps only blobs call them.
    out += [f" .weak __real_{name}" for role, name in by_role.items() if role not in _ALWAYS_CALLED]
    out += [f" .quad __real_{by_role[i]}" if i in by_role else " .quad 0" for i in range(abi.INITIALIZE_MODULE + 1)]
    return out


def _wrapper(name: str) -> list[str]:
    return [" .p2align 4", *symbol(f"__wrap_{name}", "function")]
