"""One lazy library: what it has, what it is told to do, and what it tells."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from lazyck.errors import CompileError
from lazyck.library.c_interface import LISTENER, SIGNATURES, StatsStruct, text_of
from lazyck.library.facts import Event, Stats
from lazyck.library.forbidding import BLOCKS
from lazyck.library.job import Prefetch


def fitting(blobs: Sequence[str], what: Sequence[str] | str) -> list[str]:
    """Those of `blobs` that a shell pattern matches, or those that a list has, in its order."""
    if isinstance(what, str):
        return [name for name in blobs if fnmatchcase(name, what)]
    there = set(blobs)
    return [name for name in what if name in there]


class Library:
    """A lazy library that this process has loaded. Made by `load` or `loaded`."""

    def __init__(self, handle: ctypes.CDLL, path: str) -> None:
        self.path = path
        self._handle = handle
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(handle, name)
            function.restype, function.argtypes = result, arguments

    def __repr__(self) -> str:
        return f"lazyck.Library({self.path!r})"

    def _check(self, status: int) -> int:
        if status < 0:
            raise self._error()
        return status

    def _error(self) -> CompileError:
        return CompileError(text_of(self._handle.lazyck_last_error()) or f"{self.path}: unknown error")

    @cached_property
    def _names(self) -> tuple[str, ...]:
        count = self._check(self._handle.lazyck_blob_count())
        return tuple(text_of(self._handle.lazyck_blob_name(i)) for i in range(count))

    def blobs(self) -> tuple[str, ...]:
        """The names of all its blobs, in the manifest's order."""
        return self._names

    def is_cached(self, blob: str) -> bool:
        """Whether a call of the blob now would find it compiled. Raises `CompileError` for an unknown name."""
        return self._check(self._handle.lazyck_is_cached(os.fsencode(blob))) == 1

    def stats(self) -> Stats:
        """Counts since the first lazy call."""
        out = StatsStruct(ctypes.sizeof(StatsStruct))
        self._check(self._handle.lazyck_get_stats(ctypes.byref(out)))
        return Stats(*(int(getattr(out, name)) for name in Stats.__dataclass_fields__))

    def set_cache_dir(self, path: str | os.PathLike[str]) -> None:
        """Use this cache for what is not loaded yet. Raises `CompileError` when it cannot be one."""
        self._check(self._handle.lazyck_set_cache_dir(os.fsencode(path)))

    def clear_failures(self) -> int:
        """Let blobs that the compiler refused be tried again; returns how many there were."""
        return self._check(self._handle.lazyck_clear_failures())

    def prefetch(self, what: Iterable[str] | os.PathLike[str] | str = "*", *, workers: int = 0) -> Prefetch:
        """Begin to make blobs ready in the background, `workers` at a time (0: `LAZYCK_JOBS`), and return at once:
        wait for what this returns, or await it.

        `what` is a list of names, the `Path` of a profile, or one shell pattern for names. Blobs of a
        profile that the library does not have are left out, with a warning in the log. Raises `CompileError` for a name
        or pattern that fits no blob.
        """
        if isinstance(what, str):
            pattern, what = what, fitting(self.blobs(), what)
            if not what:
                raise CompileError(f"{self.path}: no blob matches {pattern!r}", "Library.blobs() has the names")
        return Prefetch([(self, self._begin(what, workers))])

    def _begin(self, what: Iterable[str] | os.PathLike[str], workers: int) -> int:
        """The job of the C interface that makes these names, or a profile's, ready."""
        job: int | None
        if isinstance(what, os.PathLike):
            job = self._handle.lazyck_job_replay(os.fsencode(what), workers)
        else:
            names = list(map(os.fsencode, what))
            job = self._handle.lazyck_job_start((ctypes.c_char_p * len(names))(*names), len(names), workers)
        if not job:
            raise self._error()
        return job

    @contextlib.contextmanager
    def forbid_jit(self) -> Iterator[None]:
        """Within it a blob of this library that is not cached is an error instead of a compile, in all threads, as
        within `lazyck.forbid_jit`."""
        with BLOCKS.forbid(self.path, lambda: [self]):
            yield

    def _forbid_jit(self, is_forbidden: int) -> int:
        """Whether it was forbidden before."""
        return self._check(self._handle.lazyck_forbid_jit(is_forbidden))

    @contextlib.contextmanager
    def record(self, profile: str | os.PathLike[str]) -> Iterator[None]:
        """Within it the blobs that are called are appended to the profile."""
        self._check(self._handle.lazyck_record(os.fsencode(profile)))
        try:
            yield
        finally:
            self._check(self._handle.lazyck_record(None))

    def speculate(self, profile: str | os.PathLike[str] | None) -> None:
        """From now on a blob's first call has those made ready, one at a time in the background, that the profile
        shows to follow it soon in at least half of the processes that called it; None ends that.

        Give it the records of several runs, one after another in a file: a merged profile does not tell what was
        called in one process. Raises `CompileError` when it cannot be read.
        """
        self._check(self._handle.lazyck_speculate(None if profile is None else os.fsencode(profile)))

    @contextlib.contextmanager
    def on_event(self, callback: Callable[[Event], object]) -> Iterator[None]:
        """Within it `callback` hears of every compile (as it begins and as it ends), wait and load.

        It is called on a thread of its own, in order and some time after the event; whatever is over by then has been
        told when the `with` ends. What it raises is printed and goes no further. One at a time for each library.
        Raises `CompileError` where a callback takes more than ten seconds at the end.
        """

        def hear(event: Any, _data: object) -> None:
            e = event.contents
            callback(
                Event(
                    kind=text_of(e.kind), library=text_of(e.library), blob=text_of(e.blob), arch=text_of(e.arch),
                    what=text_of(e.what), start=e.start, seconds=e.seconds, peak_kib=int(e.peak_kib),
                    bytes=int(e.bytes), has_ended=bool(e.has_ended), has_failed=bool(e.has_failed),
                )
            )  # fmt: skip

        listener = LISTENER(hear)
        self._check(self._handle.lazyck_set_listener(listener, None))
        _LISTENERS[self.path] = self, listener
        try:
            yield
        finally:
            self._stop_listening()

    def _stop_listening(self) -> None:
        self._check(self._handle.lazyck_set_listener(LISTENER(), None))  # waits for a callback that runs
        _LISTENERS.pop(self.path, None)

    @contextlib.contextmanager
    def on_compile(self, callback: Callable[[Event], object]) -> Iterator[None]:
        """`on_event` for compiles alone: for a progress bar of one's own."""
        with self.on_event(lambda event: callback(event) if event.kind == "compile" else None):
            yield


# What libraries call. Where a program ends within a `with` of another thread, nobody may be called in an interpreter
# that is being taken apart.
_LISTENERS: dict[str, tuple[Library, object]] = {}


@atexit.register
def _end_listening() -> None:
    for library, _ in list(_LISTENERS.values()):
        with contextlib.suppress(CompileError):
            library._stop_listening()
