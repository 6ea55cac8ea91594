"""Lists the functions of the GPU runtimes that are wrapped in a library with host units, and
renders the wrappers' assembler text.

A kernel's handle is registered when its library is loaded. Its first use goes through one of these
functions. The wrapper has the kernel's device code made ready
(`runtime/src/library/kernels.cpp`), and jumps on. A handle that is ready costs six instructions.
The launches of nvcc 13's stubs are not wrapped: they name a kernel that `__cudaGetKernel` was asked
for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from _lazyck import abi
from _lazyck.postbuild.objects.machine_code import MachineCode, symbol, text

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


@dataclass(frozen=True)
class Wrapper:
    """Describes a wrapped function. `argument` is the number of the argument that says the handle,
    `kind` how it does (`abi.HANDLE_...`)."""

    name: str
    argument: int
    kind: int


def _wrappers() -> Mapping[str, Wrapper]:
    by_argument = _OF_ONE | {lead + name: n for lead in ("cuda", "hip") for name, n in _CUDA_AND_HIP.items()}
    rows = {name: (argument, abi.HANDLE_ITSELF) for name, argument in by_argument.items()}
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
    """Return the functions of a GPU runtime that register device code or take a handle."""
    lead = ("hip", "__hip") if toolchain == abi.TOOLCHAIN_ROCM else ("cuda", "__cuda")
    return tuple(sorted(name for name in (*_WRAPPERS, *_REGISTERING) if name.startswith(lead)))


def wrapped_among(undefined: Iterable[str]) -> tuple[str, ...]:
    """Return those of the symbols `undefined` in a link that are wrapped (`--wrap`), in order."""
    return tuple(sorted(s for s in frozenset(undefined) if s in _WRAPPERS or s in _REGISTERING))


def render_wrappers(names: Sequence[str], slots: int, code: MachineCode) -> list[str]:
    """Return the text of the wrappers of `names`, and of their tables, behind so many slots."""
    handles = [_WRAPPERS[n] for n in names if n in _WRAPPERS]
    registering = {n: _REGISTERING[n] for n in names if n in _REGISTERING}
    out = [' .section .text.lazyck_wrappers,"ax",@progbits', " .cfi_startproc"]
    for name, (_, target) in registering.items():
        out += [*_wrapper(name), code.landing, f"{code.branch} {target}", f" .hidden {target}"]
    for i, wrapper in enumerate(handles):
        number, real = slots + i, f"{abi.SYMBOL_WRAPPED}+{8 * 2 * i}"
        out += [*_wrapper(wrapper.name), code.landing]
        if wrapper.kind == abi.HANDLE_ITSELF:
            handle, low = code.arguments[wrapper.argument]
            out += [text(code.ready, number, handle=handle, low=low, real=real), f".Llazyck_use{number}:"]
        # The slow path is that of a stub.
        slow = [text(code.tell, number), f"{code.branch} {abi.SYMBOL_TRAMPOLINE}"]
        if code.pushed:
            slow.insert(1, f" .cfi_adjust_cfa_offset {code.pushed}")
            slow = [" .cfi_remember_state", *slow, " .cfi_restore_state"]
        out += slow
    out += [" .cfi_endproc", ' .section .data.rel.ro.lazyck_wrapped,"aw",@progbits', " .p2align 3"]
    out += [*symbol(abi.SYMBOL_WRAPPED, "object")]
    for wrapper in handles:
        # The symbol is weak: this release of the runtime may lack a function that only blobs might
        # call.
        real = f"__real_{wrapper.name}"
        out += [f" .weak {real}", f" .quad {real}", f" .long {wrapper.argument},{wrapper.kind}"]
    by_role = {role: name for name, (role, _) in registering.items()}
    out += [*symbol(abi.SYMBOL_REGISTERING, "object")]
    # The library itself needs what every source with device code calls, as it would ahead of time.
    # The other functions are weak, since perhaps only blobs call them.
    out += [f" .weak __real_{name}" for role, name in by_role.items() if role not in _ALWAYS_CALLED]
    out += [f" .quad __real_{by_role[i]}" if i in by_role else " .quad 0" for i in range(abi.INITIALIZE_MODULE + 1)]
    return out


def _wrapper(name: str) -> list[str]:
    return [" .p2align 4", *symbol(f"__wrap_{name}", "function")]
