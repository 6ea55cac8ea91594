"""OpenTelemetry spans of what lazy libraries do, so that a compile shows up within the request that
waited for it.

`opentelemetry-api` must be installed. The program's own SDK decides where the spans go.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from lazyck import __version__
from lazyck.errors import LazyckError
from lazyck.library.c_interface import Event
from lazyck.library.library import Library

__all__ = ["spans"]


@contextlib.contextmanager
def spans(library: Library, *, tracer_provider: Any = None) -> Iterator[None]:
    """Turn each compile, wait and load of the library within the block into a span
    `lazyck.compile`, `lazyck.wait` or `lazyck.load`. Its parent is the span that is current where
    the block begins.

    The attributes are `lazyck.library`, `.blob`, `.arch`, `.what` (where a load came from, what a
    wait was for), and `.peak_memory` and `.size`, both in bytes. A failure has the status ERROR
    with the reason. Each operation that has ended by the end of the block has its span then. This
    uses `Library.on_event`: a library can have only one at a time, so blocks cannot be nested.
    Without a `tracer_provider` the program's own is used.

    Raises `LazyckError` if `opentelemetry-api` is not installed, and as `Library.on_event` does.
    """
    try:
        from opentelemetry import context, trace
    except ImportError as e:
        raise LazyckError("spans need opentelemetry, which is not installed", "pip install opentelemetry-sdk") from e
    tracer = trace.get_tracer("lazyck", __version__, tracer_provider)
    parent = context.get_current()  # events arrive on another thread, which has no context

    def hear(event: Event) -> None:
        if not event.has_ended:
            return
        start = round(event.start * 1e9)  # nanoseconds since 1970
        known = {
            "library": event.library, "blob": event.blob, "arch": event.arch, "what": event.what,
            "peak_memory": 1024 * event.peak_kib, "size": event.bytes,
        }  # fmt: skip
        attributes = {f"lazyck.{name}": value for name, value in known.items() if value}
        span = tracer.start_span(f"lazyck.{event.kind}", context=parent, start_time=start, attributes=attributes)
        if event.has_failed:
            span.set_status(trace.StatusCode.ERROR, event.what)
        span.end(end_time=start + round(event.seconds * 1e9))

    with library.on_event(hear):
        yield
