"""Lists the functions of the GPU runtimes that are wrapped in a library with host units, and
renders the wrappers' assembler text.

A kernel's handle is registered when its library is loaded. Its first use goes through one of these
functions. The wrapper has the kernel's device code made ready
(`runtime/src/library/kernels.cpp`), and jumps on. A handle that is ready costs six instructions.
The launches of nvcc 13's stubs are not wrapped: they name a kernel that `__cudaGetKernel` was asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from _lazyck import abi

_FIRST, _NODE = abi.HANDLE_FIRST, abi.HANDLE_NODE

# The value is the number of the argument that is a handle.
_CUDA = {
    "__cudaGetKernel": 1, "cudaFuncGetAttributes": 1, "cudaFuncGetName": 1, "cudaFuncGetParamInfo": 0,
    "cudaFuncSetAttribute": 0, "cudaFuncSetCacheConfig": 0, "cudaFuncSetSharedMemConfig": 0,
    "cudaGetFuncBySymbol": 1, "cudaGetKernel": 1, "cudaGetSymbolAddress": 1, "cudaGetSymbolSize": 1,
    "cudaGraphAddMemcpyNodeFromSymbol": 5, "cudaGraphAddMemcpyNodeToSymbol": 4,
    "cudaGraphExecMemcpyNodeSetParamsFromSymbol": 3, "cudaGraphExecMemcpyNodeSetParamsToSymbol": 2,
    "cudaGraphMemcpyNodeSetParamsFromSymbol": 2, "cudaGraphMemcpyNodeSetParamsToSymbol": 1,
    "cudaLaunchCooperativeKernel": 0, "cudaLaunchKernel": 0, "cudaLaunchKernelExC": 1,
    "cudaMemcpyFromSymbol": 1, "cudaMemcpyFromSymbolAsync": 1, "cudaMemcpyToSymbol": 0, "cudaMemcpyToSymbolAsync": 0,
    "cudaOccupancyAvailableDynamicSMemPerBlock": 1, "cudaOccupancyMaxActiveBlocksPerMultiprocessor": 1,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 1, "cudaOccupancyMaxActiveClusters": 1,
    "cudaOccupancyMaxPotentialClusterSize": 1,
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
_HIP = {
    "hipExtLaunchKernel": 0, "hipFuncGetAttributes": 1, "hipFuncSetAttribute": 0, "hipFuncSetCacheConfig": 0,
    "hipFuncSetSharedMemConfig": 0, "hipGetFuncBySymbol": 1, "hipGetSymbolAddress": 1, "hipGetSymbolSize": 1,
    "hipGraphAddMemcpyNodeFromSymbol": 5, "hipGraphAddMemcpyNodeToSymbol": 4,
    "hipGraphExecMemcpyNodeSetParamsFromSymbol": 3, "hipGraphExecMemcpyNodeSetParamsToSymbol": 2,
    "hipGraphMemcpyNodeSetParamsFromSymbol": 2, "hipGraphMemcpyNodeSetParamsToSymbol": 1, "hipKernelNameRefByPtr": 0,
    "hipLaunchByPtr": 0, "hipLaunchCooperativeKernel": 0, "hipLaunchKernel": 0, "hipLaunchKernelExC": 1,
    "hipMemcpyFromSymbol": 1, "hipMemcpyFromSymbolAsync": 1, "hipMemcpyToSymbol": 0, "hipMemcpyToSymbolAsync": 0,
    "hipOccupancyAvailableDynamicSMemPerBlock": 1, "hipOccupancyMaxActiveBlocksPerMultiprocessor": 1,
    "hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 1, "hipOccupancyMaxActiveClusters": 1,
    "hipOccupancyMaxPotentialBlockSize": 2, "hipOccupancyMaxPotentialClusterSize": 1,
}  # fmt: skip
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


@dataclass(frozen=True)
class Wrapper:
    """Describes a wrapped function. `argument` is the number of the argument that says the handle,
    `kind` how it does (`abi.HANDLE_...`)."""

    name: str
    argument: int
    kind: int


def _wrappers() -> Mapping[str, Wrapper]:
    rows = {name: (argument, abi.HANDLE_ITSELF) for name, argument in (_CUDA | _HIP).items()}
    rows |= _CUDA_STRUCTS | _ADD_NODE | _HIP_STRUCTS
    rows |= {name + end: rows[name] for end, names in _PER_THREAD.items() for name in names}
    return {name: Wrapper(name, *row) for name, row in rows.items()}


_WRAPPERS = _wrappers()
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
    """Return the functions of a toolchain's GPU runtime that register device code or take a
    handle."""
    lead = ("hip", "__hip") if toolchain == abi.TOOLCHAIN_ROCM else ("cuda", "__cuda")
    return tuple(sorted(name for name in (*_WRAPPERS, *_REGISTERING) if name.startswith(lead)))


def wrapped_among(undefined: Iterable[str]) -> tuple[str, ...]:
    """Return those of the symbols `undefined` in a link that are to be wrapped (`--wrap`), in
    order."""
    return tuple(sorted(s for s in frozenset(undefined) if s in _WRAPPERS or s in _REGISTERING))


def render_wrappers(names: Sequence[str], slots: int, machine: str) -> list[str]:
    """Return the assembler text of the wrappers of `names`, and of their tables, for a library with
    so many slots."""
    handles = [_WRAPPERS[n] for n in names if n in _WRAPPERS]
    registering = {n: _REGISTERING[n] for n in names if n in _REGISTERING}
    out = [' .section .text.lazyck_wrappers,"ax",@progbits', " .cfi_startproc"]
    for name, (_, target) in registering.items():
        out += [*_head(name), f" {_LANDING[machine]}", f" {_BRANCH[machine]} {target}", f" .hidden {target}"]
    for i, wrapper in enumerate(handles):
        out += [*_head(wrapper.name), *_RENDERERS[machine](wrapper, 8 * 2 * i, slots + i)]
    out += [" .cfi_endproc", ' .section .data.rel.ro.lazyck_wrapped,"aw",@progbits', " .p2align 3"]
    out += [*_object(abi.SYMBOL_WRAPPED)]
    for wrapper in handles:
        # The symbol is weak: this release of the runtime may lack a function that only blobs might
        # call.
        real = f"__real_{wrapper.name}"
        out += [f" .weak {real}", f" .quad {real}", f" .long {wrapper.argument},{wrapper.kind}"]
    by_role = {role: name for name, (role, _) in registering.items()}
    out += [*_object(abi.SYMBOL_REGISTERING)]
    # The library itself needs what every source with device code calls, as it would ahead of time.
    # The other functions are weak, since perhaps only blobs call them.
    out += [f" .weak __real_{name}" for role, name in by_role.items() if role not in _ALWAYS_CALLED]
    out += [f" .quad __real_{by_role[i]}" if i in by_role else " .quad 0" for i in range(abi.INITIALIZE_MODULE + 1)]
    return out


def _head(name: str) -> list[str]:
    wrapper = f"__wrap_{name}"
    return [" .p2align 4", f" .globl {wrapper}", f" .hidden {wrapper}", f" .type {wrapper},%function", f"{wrapper}:"]


def _object(name: str) -> list[str]:
    return [f" .globl {name}", f" .hidden {name}", f" .type {name},%object", f"{name}:"]


_X86_64_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")


def _x86_64(wrapper: Wrapper, row: int, number: int) -> tuple[str, ...]:
    # rax, r10 and r11 carry nothing into a C function that takes no variable arguments. The slow
    # path is that of a stub: the number, which unwinders see as a push, then the trampoline.
    slow = (
        " .cfi_remember_state",
        " .byte 0x68",
        f" .long {number}",
        " .cfi_adjust_cfa_offset 8",
        f" jmp {abi.SYMBOL_TRAMPOLINE}",
        " .cfi_restore_state",
    )
    if wrapper.kind != abi.HANDLE_ITSELF:
        return " endbr64", *slow
    handle = _X86_64_ARGUMENTS[wrapper.argument]
    return (
        " endbr64",
        f" movzwl %{_LOW[handle]},%eax",
        f" leaq {abi.SYMBOL_READY}(%rip),%r11",
        f" cmpq %{handle},(%r11,%rax,8)",
        f" jne .Llazyck_use{number}",
        f" jmp *{abi.SYMBOL_WRAPPED}+{row}(%rip)",
        f".Llazyck_use{number}:",
        *slow,
    )


_LOW = {"rdi": "di", "rsi": "si", "rdx": "dx", "rcx": "cx", "r8": "r8w", "r9": "r9w"}


def _aarch64(wrapper: Wrapper, row: int, number: int) -> tuple[str, ...]:
    slow = (f" mov w17,{number & 0xFFFF}", f" movk w17,{number >> 16},lsl 16", f" b {abi.SYMBOL_TRAMPOLINE}")
    if wrapper.kind != abi.HANDLE_ITSELF:
        return " hint 34", *slow
    table = f"{abi.SYMBOL_WRAPPED}+{row}"
    return (
        " hint 34",
        f" adrp x16,{abi.SYMBOL_READY}",
        f" add x16,x16,:lo12:{abi.SYMBOL_READY}",
        f" ubfx x17,x{wrapper.argument},0,{abi.READY_HANDLE_BITS}",
        " ldr x16,[x16,x17,lsl 3]",
        f" cmp x16,x{wrapper.argument}",
        f" b.ne .Llazyck_use{number}",
        f" adrp x16,{table}",
        f" ldr x16,[x16,:lo12:{table}]",
        " br x16",
        f".Llazyck_use{number}:",
        *slow,
    )


_RENDERERS: dict[str, Callable[[Wrapper, int, int], tuple[str, ...]]] = {"aarch64": _aarch64, "x86_64": _x86_64}
_LANDING = {"aarch64": "hint 34", "x86_64": "endbr64"}
_BRANCH = {"aarch64": "b", "x86_64": "jmp"}
