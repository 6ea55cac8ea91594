"""Lazy libraries of this process: what they hold, making blobs ready, records, and what they
compile.

Every function here works through the C interface that each lazy library exports (`lazyck.h`).
Libraries that torch, ctypes or an extension module has already loaded are found by their path, or
among all that this process has loaded. Programs import these names from `lazyck` itself.
"""

from __future__ import annotations

from lazyck.errors import CompileError, LazyckError
from lazyck.library.facts import Event, Progress, Stats
from lazyck.library.job import Prefetch
from lazyck.library.library import Library
from lazyck.library.process import drain, forbid_jit, load, loaded, prefetch, ready
from lazyck.library.recording import record

__all__ = [
    "CompileError",
    "Event",
    "LazyckError",
    "Library",
    "Prefetch",
    "Progress",
    "Stats",
    "drain",
    "forbid_jit",
    "load",
    "loaded",
    "prefetch",
    "ready",
    "record",
]
