"""Lazy libraries of this process: what they hold, making blobs ready, records, and what they
compile.

Every function here works through the C interface that each lazy library exports (`lazyck.h`).
Libraries that torch, ctypes or an extension module has already loaded are found by their path, or
among all that this process has loaded. Programs import these names from `lazyck` itself.
"""

from _lazyck.errors import CompileError, LazyckError
from _lazyck.library.facts import Event, Progress, Stats
from _lazyck.library.job import Prefetch
from _lazyck.library.library import Library
from _lazyck.library.process import drain, forbid_jit, load, loaded, prefetch, ready
from _lazyck.library.recording import record

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

# Tracebacks, help and pickles name them as programs do.
for _name in __all__:
    globals()[_name].__module__ = "lazyck"
