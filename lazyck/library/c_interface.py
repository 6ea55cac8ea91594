"""What lazy libraries report (counts, progress, events), and the C interface that each exports
(`lazyck.h`), declared for ctypes."""

import ctypes
import os
from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")
LONGEST_LOOK = 0.2  # seconds for which Ctrl-C has no effect while the interface waits


@dataclass(frozen=True)
class Stats:
    """Counts since the library's first lazy call. `compile_ns` is wall time in nanoseconds."""

    blobs: int
    symbols: int
    loaded: int
    hits: int
    misses: int
    compiles: int
    failures: int
    damaged: int
    compile_ns: int
    remote_hits: int
    remote_refused: int
    remote_skipped: int


@dataclass(frozen=True)
class Progress:
    """The progress of a prefetch: how many blobs there are, how many are ready, and how many have
    failed.

    `seconds_left` are the expected seconds until it is over, from what compiles took before, or
    None if nothing is known.
    """

    total: int
    ready: int
    failed: int
    is_over: bool
    seconds_left: float | None = None


@dataclass(frozen=True)
class Event:
    """Something that happened to a blob.

    `kind` is "compile", "wait" or "load". `what` says why a failure happened, what a wait was for,
    or where a load came from. `start` is in seconds since 1970, and `seconds` is the duration. A
    compile that begins is an event too: `has_ended` is false and `seconds` is 0. `peak_kib` is the
    memory of the compiler's largest process, and `bytes` is the size of the entry. Either is 0 if
    it is unknown. `expected` are the seconds that a compile was expected to take, or 0.
    """

    kind: str
    library: str
    blob: str
    arch: str
    what: str
    start: float
    seconds: float
    peak_kib: int
    bytes: int
    has_ended: bool
    has_failed: bool
    expected: float = 0.0


def text_of(value: bytes | None) -> str:
    """Return a text of the interface, or an empty string for NULL."""
    return os.fsdecode(value or b"")


# How the structs of the interface spell the fields of the classes above, and how to read those.
_TYPES: dict[Any, tuple[Any, Any]] = {
    str: (ctypes.c_char_p, text_of),
    int: (ctypes.c_uint64, int),
    bool: (ctypes.c_int, bool),
    float: (ctypes.c_double, float),
}


def _struct_of(facts: Any) -> list[tuple[str, Any]]:
    """Return the fields of the struct that stands for a class above."""
    return [("size", ctypes.c_uint64), *((field.name, _TYPES[field.type][0]) for field in fields(facts))]


def facts_of(facts: type[T], struct: ctypes.Structure) -> T:
    """Return the contents of the struct that stands for the class `facts`."""
    return facts(*(_TYPES[f.type][1](getattr(struct, f.name)) for f in fields(facts)))  # type: ignore[arg-type]


class StatsStruct(ctypes.Structure):
    _fields_ = _struct_of(Stats)


class EventStruct(ctypes.Structure):
    _fields_ = _struct_of(Event)


class ProgressStruct(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("size", "total", "ready", "failed", "is_over")),
        ("left", ctypes.c_double),
    ]


LISTENER = ctypes.CFUNCTYPE(None, ctypes.POINTER(EventStruct), ctypes.c_void_p)

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "lazyck_abi_version": (ctypes.c_int, []),
    "lazyck_last_error": (ctypes.c_char_p, []),
    "lazyck_set_cache_dir": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_get_stats": (ctypes.c_int, [ctypes.POINTER(StatsStruct)]),
    "lazyck_clear_failures": (ctypes.c_int, []),
    "lazyck_blob_count": (ctypes.c_int, []),
    "lazyck_blob_name": (ctypes.c_char_p, [ctypes.c_int]),
    "lazyck_is_cached": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_forbid_jit": (ctypes.c_int, [ctypes.c_int]),
    "lazyck_ready": (ctypes.c_int, [ctypes.c_int]),
    "lazyck_drain": (ctypes.c_int, [ctypes.c_double]),
    "lazyck_record": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_job_start": (ctypes.c_void_p, [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t, ctypes.c_uint]),
    "lazyck_job_replay": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_uint]),
    "lazyck_job_wait": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_double, ctypes.POINTER(ProgressStruct)]),
    "lazyck_job_error": (ctypes.c_char_p, [ctypes.c_void_p]),
    "lazyck_job_cancel": (None, [ctypes.c_void_p]),
    "lazyck_job_free": (None, [ctypes.c_void_p]),
    "lazyck_set_listener": (ctypes.c_int, [LISTENER, ctypes.c_void_p]),
}


class InfoStruct(ctypes.Structure):
    """The struct that `dladdr` fills in."""

    _fields_ = [
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def progress_of(handle: ctypes.CDLL, job: int, seconds: float) -> Progress | None:
    """Wait for a job at most `seconds`. Returns its progress, or None for the library's error."""
    out = ProgressStruct(ctypes.sizeof(ProgressStruct))
    if handle.lazyck_job_wait(job, seconds, ctypes.byref(out)) < 0:
        return None
    left = float(out.left) if out.left >= 0 else None
    return Progress(int(out.total), int(out.ready), int(out.failed), bool(out.is_over), left)
