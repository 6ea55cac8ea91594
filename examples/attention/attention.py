"""Bind libattention for Python, by ctypes.

    library = attention.load("build/libattention.so")
    out, lse = library.forward(q, k, v, mask="causal")
    dq, dk, dv = library.backward(q, k, v, out, lse, dout, mask="causal")

Tensors are C-contiguous arrays of float32, float16, or uint16 (bfloat16 bits). Their shape is
[batch, seqlen, heads, head_dim]; with seqstart_q and seqstart_k given, they are packed sequences
[total, heads, head_dim]. Any object with the buffer protocol will do. Results are NumPy arrays
where NumPy is installed, else memoryviews.
"""

import ctypes
import importlib.util
import math
import os
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

# A tensor is a NumPy array or a memoryview. This module can be imported without NumPy, so NumPy's
# types cannot be named here.
Tensor = Any

DATA_TYPES = {"fp32": 0, "fp16": 1, "bf16": 2}
DATA_TYPE_OF_FORMAT = {"f": "fp32", "e": "fp16", "H": "bf16"}
MASKS = {"none": 0, "causal": 1, "window": 2}


class AttentionError(Exception):
    """Tells that a call failed; `status` is the C API's attention_status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class InvalidArgumentError(AttentionError):
    """Stands for ATTENTION_INVALID_ARGUMENT."""


class VariantNotBuiltError(AttentionError):
    """Stands for ATTENTION_VARIANT_NOT_BUILT."""


ERRORS = {1: InvalidArgumentError, 2: VariantNotBuiltError}


def _fields(kind: Any, names: str) -> list[Any]:
    return [(name, kind) for name in names.split()]


class Arguments(ctypes.Structure):
    """Mirrors attention_args of attention.h."""

    _fields_ = (
        _fields(ctypes.c_size_t, "struct_size")
        + _fields(ctypes.c_int, "data_type mask bias is_group batch seqlen_q seqlen_k total_q nhead_q nhead_k head_dim")
        + _fields(ctypes.c_int, "window_left window_right log_level")
        + _fields(ctypes.c_float, "scale")
        + _fields(ctypes.c_void_p, "elapsed_ms stream seqstart_q seqstart_k alibi_slopes")
        + _fields(ctypes.c_void_p, "q k v out lse dout dq dk dv workspace")
    )


class DeviceMemory:
    """Holds the device buffers of one call, which are freed together."""

    def __init__(self, library: "Library") -> None:
        self._library = library
        self._pointers: list[ctypes.c_void_p] = []

    def __enter__(self) -> "DeviceMemory":
        return self

    def __exit__(self, *_: object) -> None:
        for pointer in self._pointers:
            self._library.call("attention_free", pointer)

    def allocate(self, size: int) -> ctypes.c_void_p:
        pointer = ctypes.c_void_p()
        self._library.call("attention_malloc", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        self._pointers.append(pointer)
        return pointer

    def upload(self, tensor: Tensor) -> ctypes.c_void_p:
        data = memoryview(tensor).tobytes()
        pointer = self.allocate(len(data))
        self._library.call("attention_copy_to_device", pointer, data, len(data))
        return pointer

    def download(self, pointer: ctypes.c_void_p, data_format: str, shape: tuple[int, ...]) -> Tensor:
        data = bytearray(math.prod(shape) * array("H" if data_format == "e" else data_format).itemsize)
        host = (ctypes.c_char * len(data)).from_buffer(data)
        self._library.call("attention_copy_to_host", host, pointer, len(data))
        if importlib.util.find_spec("numpy") is None:
            view: Any = memoryview(data)
            return view.cast(data_format, shape)
        import numpy as np

        return np.frombuffer(data, dtype=np.dtype(data_format)).reshape(shape)


class Library:
    """Wraps a loaded libattention."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._library = ctypes.CDLL(os.fspath(path))
        self._library.attention_last_error.restype = ctypes.c_char_p
        self._library.attention_version.restype = ctypes.c_char_p
        self._library.attention_backward_workspace_size.restype = ctypes.c_size_t
        # Without these types ctypes would cut sizes to an int.
        for name in ("attention_copy_to_device", "attention_copy_to_host"):
            getattr(self._library, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    def call(self, function: str, *arguments: object) -> None:
        """Call a function of the C API that returns a status; raise the error that it reports."""
        status = int(getattr(self._library, function)(*arguments))
        if status != 0:
            message = self._library.attention_last_error().decode()
            raise ERRORS.get(status, AttentionError)(status, message)

    @property
    def version(self) -> str:
        return str(self._library.attention_version().decode())

    def device_count(self) -> int:
        count = ctypes.c_int()
        self.call("attention_device_count", ctypes.byref(count))
        return count.value

    def backward_name(self, head_dim: int, data_type: str, **options: Any) -> str:
        """Return the name of the variant that `backward` would run for these options; data_type is
        a key of DATA_TYPES."""
        arguments = _arguments(head_dim, data_type, **options)
        name = ctypes.create_string_buffer(200)
        self.call("attention_backward_name", ctypes.byref(arguments), name, ctypes.c_size_t(len(name)))
        return name.value.decode()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """Compute attention of q over k and v; return out and lse. The options are the keywords of
        _arguments."""
        with DeviceMemory(self) as memory:
            q_view = _view(q)
            arguments = _tensor_arguments(memory, q, k, v, options)
            lse_shape = _lse_shape(arguments, q_view.shape)
            arguments.out = memory.allocate(q_view.nbytes)
            arguments.lse = memory.allocate(math.prod(lse_shape) * ctypes.sizeof(ctypes.c_float))
            self.call("attention_forward", ctypes.byref(arguments))
            self.call("attention_synchronize")
            out = memory.download(arguments.out, q_view.format, q_view.shape)
            return out, memory.download(arguments.lse, "f", lse_shape)

    def backward(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients dq, dk, dv, given what forward returned and the gradient of its
        output."""
        with DeviceMemory(self) as memory:
            q_view, k_view = _view(q), _view(k)
            arguments = _tensor_arguments(memory, q, k, v, options)
            arguments.out = memory.upload(out)
            arguments.lse = memory.upload(lse)
            arguments.dout = memory.upload(dout)
            arguments.dq = memory.allocate(q_view.nbytes)
            arguments.dk = memory.allocate(k_view.nbytes)
            arguments.dv = memory.allocate(k_view.nbytes)
            workspace_size = self._library.attention_backward_workspace_size(ctypes.byref(arguments))
            arguments.workspace = memory.allocate(workspace_size)
            self.call("attention_backward", ctypes.byref(arguments))
            self.call("attention_synchronize")
            dq = memory.download(arguments.dq, q_view.format, q_view.shape)
            dk = memory.download(arguments.dk, k_view.format, k_view.shape)
            return dq, dk, memory.download(arguments.dv, k_view.format, k_view.shape)


def load(path: str | os.PathLike[str]) -> Library:
    return Library(path)


def _view(tensor: Tensor) -> Any:
    """Return a view that has the shape, format and size of a tensor."""
    return memoryview(tensor)


def _arguments(
    head_dim: int,
    data_type: str,
    *,
    mask: str = "none",
    window: tuple[int, int] = (-1, -1),
    alibi_slopes: Iterable[float] | None = None,
    scale: float = 0.0,
    seqstart_q: Sequence[int] | None = None,
    seqstart_k: Sequence[int] | None = None,
) -> Arguments:
    """Return the arguments that choose a variant.

    mask is "none", "causal" or "window". window counts the keys visible left and right of the
    diagonal; -1 means all. scale 0 stands for 1/sqrt(head_dim). seqstart_* are the offsets of the
    sequences.
    """
    if mask not in MASKS:
        raise ValueError(f"mask is {mask!r}, not one of {', '.join(MASKS)}")
    if data_type not in DATA_TYPES:
        raise ValueError(f"data_type is {data_type!r}, not one of {', '.join(DATA_TYPES)}")
    if (seqstart_q is None) != (seqstart_k is None):
        raise ValueError("packed sequences need both seqstart_q and seqstart_k")
    arguments = Arguments(struct_size=ctypes.sizeof(Arguments), head_dim=head_dim, scale=scale)
    arguments.data_type = DATA_TYPES[data_type]
    arguments.mask = MASKS[mask]
    arguments.bias = 0 if alibi_slopes is None else 1
    arguments.is_group = 0 if seqstart_q is None else 1
    arguments.window_left, arguments.window_right = window
    return arguments


def _tensor_arguments(memory: DeviceMemory, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> Arguments:
    """Upload the inputs and return the arguments for them."""
    views = [_view(tensor) for tensor in (q, k, v)]
    q_shape, k_shape, v_shape = (view.shape for view in views)
    formats = {view.format for view in views}
    if len(formats) != 1 or views[0].format not in DATA_TYPE_OF_FORMAT:
        raise ValueError("q, k and v must all be float32, all float16, or all uint16 (bfloat16 bits)")
    arguments = _arguments(q_shape[-1], DATA_TYPE_OF_FORMAT[views[0].format], **options)
    dimensions = 3 if arguments.is_group else 4
    if len(q_shape) != dimensions or len(k_shape) != dimensions or k_shape != v_shape or k_shape[-1] != q_shape[-1]:
        raise ValueError(f"q, k, v are {q_shape}, {k_shape}, {v_shape}: expected {dimensions} dimensions, v like k")
    arguments.nhead_q, arguments.nhead_k = q_shape[-2], k_shape[-2]
    if arguments.is_group:
        starts_q, starts_k = list(options["seqstart_q"]), list(options["seqstart_k"])
        if len(starts_q) != len(starts_k) or starts_q[-1] != q_shape[0] or starts_k[-1] != k_shape[0]:
            raise ValueError("seqstart_q and seqstart_k must be of one length and end with the totals of q and k")
        arguments.batch = len(starts_q) - 1
        arguments.seqlen_q, arguments.seqlen_k = _longest(starts_q), _longest(starts_k)
        arguments.total_q = q_shape[0]
        arguments.seqstart_q = memory.upload(array("i", starts_q))
        arguments.seqstart_k = memory.upload(array("i", starts_k))
    else:
        if q_shape[0] != k_shape[0]:
            raise ValueError(f"q and k are {q_shape} and {k_shape}: the batch sizes differ")
        arguments.batch, arguments.seqlen_q, arguments.seqlen_k = q_shape[0], q_shape[1], k_shape[1]
    if options.get("alibi_slopes") is not None:
        slopes = array("f", options["alibi_slopes"])
        if len(slopes) != arguments.nhead_q:
            raise ValueError(f"{len(slopes)} alibi_slopes for {arguments.nhead_q} query heads")
        arguments.alibi_slopes = memory.upload(slopes)
    arguments.q, arguments.k, arguments.v = memory.upload(q), memory.upload(k), memory.upload(v)
    return arguments


def _longest(starts: list[int]) -> int:
    return max(end - start for start, end in pairwise(starts))


def _lse_shape(arguments: Arguments, q_shape: tuple[int, ...]) -> tuple[int, ...]:
    if arguments.is_group:
        return q_shape[1], q_shape[0]
    return q_shape[0], q_shape[2], q_shape[1]
