"""Lazy libraries of this process, through the C interface that each exports (`lazyck.h`), no matter
who loaded them. Programs import these names from `lazyck` itself."""

from lazyck.errors import CompileError, LazyckError
from lazyck.library.c_interface import Event, Progress, Stats
from lazyck.library.library import Library
from lazyck.library.prefetch import Prefetch
from lazyck.library.process import drain, forbid_jit, load, loaded, prefetch, ready, record

# Tracebacks, help and pickles name them as programs do.
for _each in (
    CompileError, Event, LazyckError, Library, Prefetch, Progress, Stats,
    drain, forbid_jit, load, loaded, prefetch, ready, record,
):  # fmt: skip
    _each.__module__ = "lazyck"
