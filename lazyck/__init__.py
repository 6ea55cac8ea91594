"""Lazy libraries: each of their kernels is compiled when it is first called, then cached.

This is the interface for programs that call such libraries, no matter who has loaded them. The
command `lazyck` builds such libraries.

    import lazyck

    with lazyck.record("run.profile"):  # make ready what the last run called, and record this one
        train()

    library = lazyck.load("libscale.so")  # or one of lazyck.loaded()
    library.prefetch("scale_float_*").wait()  # in a coroutine: await library.prefetch(...)
    lazyck.ready()  # warm-up is over: LAZYCK_JIT decides on calls that have to compile
    with lazyck.forbid_jit():  # such a call raises in any case
        serve()

Errors are `LazyckError`, with a `hint`. If a blob cannot be made ready, the error is a
`CompileError`. Times are in seconds, memory is in KiB, sizes are in bytes. Builds use
`lazyck.setuptools` and `lazyck.torch`, tests use `lazyck.pytest`.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lazyck.errors import CompileError, LazyckError
    from lazyck.library.c_interface import Event, Progress, Stats
    from lazyck.library.library import Library
    from lazyck.library.prefetch import Prefetch
    from lazyck.library.process import drain, forbid_jit, load, loaded, prefetch, ready, record

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


def __getattr__(name: str) -> Any:
    # Imported only when needed, since compiler shims start this package for every file of a build.
    if name in __all__:
        from lazyck import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
