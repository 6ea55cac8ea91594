"""The C interface that each lazy library exports (`lazyck.h`), declared for ctypes."""

import ctypes
import os
from typing import Any

from _lazyck.library.facts import Progress, Stats

LONGEST_LOOK = 0.2  # seconds for which Ctrl-C has no effect while the interface waits


class StatsStruct(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), *((name, ctypes.c_uint64) for name in Stats.__dataclass_fields__)]


class ProgressStruct(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("size", "total", "ready", "failed", "is_over")),
        ("left", ctypes.c_double),
    ]


class EventStruct(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint64),
        *((name, ctypes.c_char_p) for name in ("kind", "library", "blob", "arch", "what")),
        ("start", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("peak_kib", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("has_ended", ctypes.c_int),
        ("has_failed", ctypes.c_int),
        ("expected", ctypes.c_double),
    ]


LISTENER = ctypes.CFUNCTYPE(None, ctypes.POINTER(EventStruct), ctypes.c_void_p)

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "lazyck_abi_version": (ctypes.c_int, []),
    "lazyck_last_error": (ctypes.c_char_p, []),
    "lazyck_set_cache_dir": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_get_stats": (ctypes.c_int, [ctypes.POINTER(StatsStruct)]),
    "lazyck_prefetch": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_clear_failures": (ctypes.c_int, []),
    "lazyck_blob_count": (ctypes.c_int, []),
    "lazyck_blob_name": (ctypes.c_char_p, [ctypes.c_int]),
    "lazyck_is_cached": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_forbid_jit": (ctypes.c_int, [ctypes.c_int]),
    "lazyck_ready": (ctypes.c_int, [ctypes.c_int]),
    "lazyck_drain": (ctypes.c_int, [ctypes.c_double]),
    "lazyck_record": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_speculate": (ctypes.c_int, [ctypes.c_char_p]),
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


def text_of(value: bytes | None) -> str:
    """Return a text of the interface, or an empty string for NULL."""
    return os.fsdecode(value or b"")


def progress_of(handle: ctypes.CDLL, job: int, seconds: float) -> Progress | None:
    """Wait until a job is over, at most `seconds`, and return its progress. The result is None if
    the library has an error to report."""
    out = ProgressStruct(ctypes.sizeof(ProgressStruct))
    if handle.lazyck_job_wait(job, seconds, ctypes.byref(out)) < 0:
        return None
    left = float(out.left) if out.left >= 0 else None
    return Progress(int(out.total), int(out.ready), int(out.failed), bool(out.is_over), left)
