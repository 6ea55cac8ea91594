"""lazyck: lazy kernel-compilation build system and cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lazyck.library import CompileError, Event, Library, Prefetch, Progress, Stats, load, loaded, record

__all__ = ["CompileError", "Event", "Library", "Prefetch", "Progress", "Stats", "load", "loaded", "record"]


def __getattr__(name: str) -> Any:
    # Only when it is asked for: the compiler shims start this package for every file of a build.
    if name in __all__:
        from lazyck import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
