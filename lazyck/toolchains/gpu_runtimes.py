"""Describes GPU runtimes: one row for each, with all that lazyck knows of it.

`formats/c_header.py` gives the C++ runtime its part of the rows, `Process`. Everything else asks
for the row of a toolchain, or goes through the rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lazyck import abi

_CALLS = {
    "FuncGetAttributes": 1, "FuncSetAttribute": 0, "FuncSetCacheConfig": 0, "FuncSetSharedMemConfig": 0,
    "GetFuncBySymbol": 1, "GetSymbolAddress": 1, "GetSymbolSize": 1, "GraphAddMemcpyNodeFromSymbol": 5,
    "GraphAddMemcpyNodeToSymbol": 4, "GraphExecMemcpyNodeSetParamsFromSymbol": 3,
    "GraphExecMemcpyNodeSetParamsToSymbol": 2, "GraphMemcpyNodeSetParamsFromSymbol": 2,
    "GraphMemcpyNodeSetParamsToSymbol": 1, "LaunchCooperativeKernel": 0, "LaunchKernel": 0, "LaunchKernelExC": 1,
    "MemcpyFromSymbol": 1, "MemcpyFromSymbolAsync": 1, "MemcpyToSymbol": 0, "MemcpyToSymbolAsync": 0,
    "OccupancyMaxActiveBlocksPerMultiprocessor": 1, "OccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 1,
    "OccupancyAvailableDynamicSMemPerBlock": 1, "OccupancyMaxActiveClusters": 1, "OccupancyMaxPotentialClusterSize": 1,
}  # fmt: skip
_KERNEL_NODES = {"GraphAddKernelNode": 4, "GraphExecKernelNodeSetParams": 2, "GraphKernelNodeSetParams": 1}
_NODES = {"GraphExecNodeSetParams": 2, "GraphNodeSetParams": 1}
_PARAMETERS = 16  # where the parameters of any node have those of its type
_REGISTERING = {
    "RegisterFatBinary": abi.REGISTER_IMAGE, "UnregisterFatBinary": abi.UNREGISTER_IMAGE,
    "RegisterFunction": abi.REGISTER_FUNCTION, "RegisterVar": abi.REGISTER_VARIABLE,
    "RegisterManagedVar": abi.REGISTER_MANAGED,
}  # fmt: skip


class Handle(NamedTuple):
    """Says how a function receives a handle: which argument tells it, how (`abi.HANDLE_...`), and
    the place in the struct that the argument points to, or a list's distance between two."""

    argument: int
    kind: int = abi.HANDLE_ITSELF
    place: int = 0


@dataclass(frozen=True)
class Process:
    """Says how the C++ runtime asks a GPU runtime that its process has loaded. A function without a
    name does not exist. Libraries are given by soname, the best first."""

    libraries: tuple[str, ...]
    device: str  # (int*): the current device
    count: str  # (int*)
    # What a device is compiled for is the number that two attributes make, or a name that begins
    # with a mark, in the device's properties.
    attribute: str = ""  # (int*, attribute, device)
    major: int = 0
    minor: int = 0
    properties: str = ""  # (properties*, device)
    older_properties: str = ""  # if that function is missing: the name's place is searched for
    arch_at: int = 0
    arch_mark: str = ""
    # The driver is asked by a library whose runtime is linked in, and has no names for `dlsym`.
    driver_libraries: tuple[str, ...] = ()
    driver_init: str = ""  # (0)
    driver_device: str = ""  # (int*): that of the current context
    driver_get: str = ""  # (int*, ordinal)
    driver_count: str = ""
    driver_attribute: str = ""
    # Whether a stream is captured is asked of the default streams and of PyTorch's current one.
    is_capturing: str = ""  # (stream, int*)
    capturing_libraries: tuple[str, ...] = ()
    thread_stream: int = 0  # the number of a thread's own default stream
    torch_libraries: tuple[str, ...] = ()
    torch_current: tuple[str, ...] = ()  # getCurrent…Stream(signed char)
    torch_stream: tuple[str, ...] = ()  # …Stream::stream() const, in the same order
    range_push: str = ""
    range_pop: str = ""
    range_libraries: tuple[str, ...] = ()
    reads_file: int = 0  # whether it opens, by its name, the file that an image was loaded from


@dataclass(frozen=True)
class GpuRuntime:
    """Describes a GPU runtime: the functions that are wrapped, how images are registered, and how
    it answers for a device."""

    toolchain: str
    name: str
    prefix: str  # of its functions
    process: Process
    # Beginnings, as regular expressions, of names that its compilers add to objects with kernels.
    own_data: str
    own_code: str
    kernel_node: int = 0  # where the parameters of a kernel node have the handle
    more_handles: Mapping[str, Handle] = field(default_factory=dict)
    suffixes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # for a default stream per thread
    more_registering: Mapping[str, int] = field(default_factory=dict)
    static_archive: str = ""  # the file name of a static runtime
    takes_late_managed: bool = True  # see the function below

    @property
    def wrapped(self) -> dict[str, Handle]:
        field, node = (abi.HANDLE_FIELD, self.kernel_node), (abi.HANDLE_NODE, _PARAMETERS + self.kernel_node)
        kinds = ((_CALLS, ()), (_KERNEL_NODES, field), (_NODES, node))
        called = {self.prefix + name: Handle(at, *how) for names, how in kinds for name, at in names.items()}
        called |= self.more_handles
        return called | {name + end: called[name] for end, names in self.suffixes.items() for name in names}

    @property
    def registering(self) -> dict[str, int]:
        """Map each function that registers device code to its role (`abi.REGISTER_...`)."""
        return {f"__{self.prefix}{n}": role for n, role in _REGISTERING.items()} | dict(self.more_registering)

    @property
    def functions(self) -> frozenset[str]:
        return frozenset((*self.wrapped, *self.registering))

    def registering_as(self, role: int) -> str:
        """Return the function that has this role (`abi.REGISTER_...`), or an empty string."""
        return next((name for name, its in self.registering.items() if its == role), "")


_TORCH_CUDA = ("_ZN3c104cuda20getCurrentCUDAStreamEa", "_ZNK3c104cuda10CUDAStream6streamEv")
_HIP_LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
_HIP_LAUNCH = Handle(0, abi.HANDLE_LIST, 56)  # the size of hipLaunchParams

CUDA_RUNTIME = GpuRuntime(
    toolchain=abi.TOOLCHAIN_CUDA, name="CUDA", prefix="cuda", static_archive="libcudart_static.a",
    # `__cudaLaunchKernel`, by which nvcc 13's stubs launch, needs no wrapper: `__cudaGetKernel` was
    # asked for what it is given.
    more_handles={
        "__cudaGetKernel": Handle(1), "cudaFuncGetName": Handle(1), "cudaFuncGetParamInfo": Handle(0),
        "cudaGetKernel": Handle(1), "cudaLaunchCooperativeKernelMultiDevice": Handle(0, abi.HANDLE_FIELD),
        "cudaGraphAddNode": Handle(4, abi.HANDLE_LATER_NODE, _PARAMETERS),
        "cudaGraphAddNode_v2": Handle(5, abi.HANDLE_NODE, _PARAMETERS),
    },
    suffixes={
        "_ptsz": ("cudaLaunchCooperativeKernel", "cudaLaunchKernel", "cudaLaunchKernelExC",
                  "cudaMemcpyFromSymbolAsync", "cudaMemcpyToSymbolAsync"),
        "_ptds": ("cudaMemcpyFromSymbol", "cudaMemcpyToSymbol"),
    },
    more_registering={"__cudaRegisterFatBinaryEnd": abi.REGISTER_END, "__cudaInitModule": abi.INITIALIZE_MODULE},
    own_data=r"__cuda|__fatbin|__NV_|_ZL\d+__(nv|cuda)",
    own_code=r"__cuda|_ZL\d+__(cuda|nv|sti____cuda)|__fatbin|_ZZL?\d+__(nv|cuda)|__nv",
    process=Process(
        libraries=("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"),
        device="cudaGetDevice", count="cudaGetDeviceCount", attribute="cudaDeviceGetAttribute", major=75, minor=76,
        driver_libraries=("libcuda.so.1",), driver_init="cuInit", driver_device="cuCtxGetDevice",
        driver_get="cuDeviceGet", driver_count="cuDeviceGetCount", driver_attribute="cuDeviceGetAttribute",
        is_capturing="cuStreamIsCapturing", capturing_libraries=("libcuda.so.1",), thread_stream=2,
        torch_libraries=("libc10_cuda.so",), torch_current=_TORCH_CUDA[:1], torch_stream=_TORCH_CUDA[1:],
        range_push="nvtxRangePushA", range_pop="nvtxRangePop",
        range_libraries=("libnvToolsExt.so.1", "libnvToolsExt.so"),
    ),
)  # fmt: skip
HIP_RUNTIME = GpuRuntime(
    toolchain=abi.TOOLCHAIN_ROCM, name="HIP", prefix="hip", kernel_node=24,
    more_handles={
        "hipExtLaunchKernel": Handle(0), "hipKernelNameRefByPtr": Handle(0), "hipLaunchByPtr": Handle(0),
        "hipOccupancyMaxPotentialBlockSize": Handle(2), "hipExtLaunchMultiKernelMultiDevice": _HIP_LAUNCH,
        "hipLaunchCooperativeKernelMultiDevice": _HIP_LAUNCH,
        "hipGraphAddNode": Handle(4, abi.HANDLE_NODE, _PARAMETERS + 24),
    },
    suffixes={
        "_spt": ("hipLaunchCooperativeKernel", "hipLaunchKernel", "hipMemcpyFromSymbol", "hipMemcpyFromSymbolAsync",
                 "hipMemcpyToSymbol", "hipMemcpyToSymbolAsync"),
    },
    own_data="__hip_(gpubin_handle|cuid|fatbin|module)", own_code="__hip",
    takes_late_managed=False,  # it gives a device the variables' addresses once, at the first launch on it
    process=Process(
        libraries=_HIP_LIBRARIES, device="hipGetDevice", count="hipGetDeviceCount",
        properties="hipGetDevicePropertiesR0600", older_properties="hipGetDeviceProperties",
        arch_at=1160, arch_mark="gfx", is_capturing="hipStreamIsCapturing", capturing_libraries=_HIP_LIBRARIES,
        # In ROCm builds, PyTorch used the names of HIP, and uses those of CUDA since 2.11.
        torch_libraries=("libc10_hip.so",), torch_current=("_ZN3c103hip19getCurrentHIPStreamEa", _TORCH_CUDA[0]),
        torch_stream=("_ZNK3c103hip9HIPStream6streamEv", _TORCH_CUDA[1]),
        range_push="roctxRangePushA", range_pop="roctxRangePop",
        range_libraries=("librocprofiler-sdk-roctx.so.1", "libroctx64.so.4", "libroctx64.so"), reads_file=1,
    ),
)  # fmt: skip
GPU_RUNTIMES: tuple[GpuRuntime, ...] = (CUDA_RUNTIME, HIP_RUNTIME)


def of_toolchain(name: str) -> GpuRuntime:
    """Return the runtime that launches the kernels of a toolchain. Raises KeyError if none does."""
    return {row.toolchain: row for row in GPU_RUNTIMES}[name]


def takes_late_managed(toolchain: str) -> bool:
    """Return whether a managed variable works if it is registered after kernels were launched."""
    return all(row.takes_late_managed for row in GPU_RUNTIMES if row.toolchain == toolchain)
