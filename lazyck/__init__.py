"""Lazy libraries: each of their kernels is compiled when it is first called, then cached.

This is the interface for programs that call such libraries, whoever has loaded them. `lazyck` on the command line
builds them.

    import lazyck

    with lazyck.record("run.profile"):  # make ready what the last run called, and record this one
        train()

    library = lazyck.load("libscale.so")  # or one of lazyck.loaded()
    library.prefetch("scale_float_*").wait()  # in a coroutine: await library.prefetch("scale_float_*")
    with lazyck.forbid_jit():  # a call that would have to compile raises
        serve()

Errors are `LazyckError`, with a `hint`; that of a blob which cannot be made ready is a `CompileError`. Times are
seconds, memory is KiB, sizes are bytes. Builds use `lazyck.setuptools` and `lazyck.torch`, tests `lazyck.pytest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lazyck.library import (
        CompileError,
        Event,
        LazyckError,
        Library,
        Prefetch,
        Progress,
        Stats,
        forbid_jit,
        load,
        loaded,
        prefetch,
        record,
    )

__all__ = [
    "CompileError",
    "Event",
    "LazyckError",
    "Library",
    "Prefetch",
    "Progress",
    "Stats",
    "forbid_jit",
    "load",
    "loaded",
    "prefetch",
    "record",
]


def __getattr__(name: str) -> Any:
    # Only when it is asked for: the compiler shims start this package for every file of a build.
    if name in __all__:
        from lazyck import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
