"""One lazy library: what it holds, what it can be told to do, and what it reports. And the blocks
in which libraries may not compile."""

import atexit
import contextlib
import ctypes
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from lazyck import abi
from lazyck.errors import CompileError
from lazyck.library.c_interface import LISTENER, LONGEST_LOOK, SIGNATURES, Event, Stats, StatsStruct, facts_of, text_of
from lazyck.library.prefetch import Prefetch
from lazyck.settings.environment import environment, setting


def fitting(blobs: Sequence[str], what: Sequence[str] | str) -> list[str]:
    """Return those of `blobs` that match a shell pattern, or that are in a list, in its order."""
    if isinstance(what, str):
        return [name for name in blobs if fnmatchcase(name, what)]
    there = set(blobs)
    return [name for name in what if name in there]


# A path that stands for every library.
ALL = ""


class Blocks:
    """The libraries that may not compile: those that a block names by their paths, and in a block
    of `ALL` every one. Threads enter and leave blocks in any order; the last one to end restores
    the previous state."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count: Counter[str] = Counter()
        self._before: dict[str, tuple[Library, int]] = {}  # by path: the state outside of all blocks
        self._outside = 0  # the state outside for libraries that are loaded within a block of `ALL`
        self._environment = contextlib.ExitStack()

    @contextlib.contextmanager
    def forbid(self, path: str, libraries: "Callable[[], Iterable[Library]]") -> Iterator[None]:
        """Enter a block of `path`, which stands for these libraries. Raises `CompileError`, also if
        a variable of the environment makes no sense."""
        with self._lock:
            try:
                self._forbid(libraries())
                if path == ALL and not self._count[ALL]:
                    self._outside = int(environment().get(abi.ENV_JIT) == "off")
                    self._environment.enter_context(setting(abi.ENV_JIT, "off"))
                self._count[path] += 1
            except BaseException:
                self._restore()
                raise
        try:
            yield
        finally:
            with self._lock:
                if path == ALL and self._count[ALL] == 1:
                    self._environment.close()
                    self._forbid(libraries())  # libraries that were loaded within the block are restored, too
                self._count[path] -= 1
                self._restore()

    def _forbid(self, libraries: "Iterable[Library]") -> None:
        for library in libraries:
            before = library._forbid_jit(1)
            self._before.setdefault(library.path, (library, self._outside if self._count[ALL] else before))

    def _restore(self) -> None:
        """Restore the state of libraries to which no block applies any more."""
        for path, (library, before) in list(self._before.items()):
            if not self._count[ALL] and not self._count[path]:
                del self._before[path]
                library._forbid_jit(before)


BLOCKS = Blocks()


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
        """Return the names of all its blobs, in the order of the manifest."""
        return self._names

    def is_cached(self, blob: str) -> bool:
        """Return whether a call of the blob would find it compiled. Raises `CompileError` for an
        unknown name."""
        return self._check(self._handle.lazyck_is_cached(os.fsencode(blob))) == 1

    def stats(self) -> Stats:
        """Return counts since the first lazy call."""
        out = StatsStruct(ctypes.sizeof(StatsStruct))
        self._check(self._handle.lazyck_get_stats(ctypes.byref(out)))
        return facts_of(Stats, out)

    def set_cache_dir(self, path: str | os.PathLike[str]) -> None:
        """Use this cache for blobs that are not loaded yet. Raises `CompileError` if it cannot be
        used as a cache."""
        self._check(self._handle.lazyck_set_cache_dir(os.fsencode(path)))

    def clear_failures(self) -> int:
        """Forget which blobs the compiler refused, so that they are tried again. Returns their
        number."""
        return self._check(self._handle.lazyck_clear_failures())

    def prefetch(self, what: Iterable[str] | os.PathLike[str] | str = "*", *, workers: int = 0) -> Prefetch:
        """Begin to make blobs ready in the background, `workers` at a time (0: `LAZYCK_JOBS`), and
        return at once. Wait for the result, or await it.

        `what` is a list of names, the `Path` of a profile, or one shell pattern for names. Blobs in
        a profile that the library does not have are left out, with a warning in the log. Raises
        `CompileError` for a name or pattern that fits no blob.
        """
        if isinstance(what, str):
            pattern, what = what, fitting(self.blobs(), what)
            if not what:
                raise CompileError(f"{self.path}: no blob matches {pattern!r}", "Library.blobs() returns the names")
        return Prefetch([(self, self._begin(what, workers))])

    def _begin(self, what: Iterable[str] | os.PathLike[str], workers: int) -> int:
        """Start the job of the C interface that makes these names, or those of a profile, ready."""
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
        """Within the block a blob of this library that is not cached is an error instead of a
        compile, in all threads, as within `lazyck.forbid_jit`."""
        with BLOCKS.forbid(self.path, lambda: [self]):
            yield

    def ready(self, is_ready: bool = True) -> bool:
        """Declare that this library's warm-up is over, or that it is not, as `lazyck.ready` does
        for all libraries. Returns the previous state."""
        return self._check(self._handle.lazyck_ready(int(is_ready))) == 1

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until nothing of this library is in flight, as `lazyck.drain` does for all."""
        return drain([self], timeout)

    def _forbid_jit(self, is_forbidden: int) -> int:
        """Forbid compiles, or allow them. Returns whether they were forbidden before."""
        return self._check(self._handle.lazyck_forbid_jit(is_forbidden))

    @contextlib.contextmanager
    def record(self, profile: str | os.PathLike[str]) -> Iterator[None]:
        """Append the blobs that are called within the block to the profile."""
        self._check(self._handle.lazyck_record(os.fsencode(profile)))
        try:
            yield
        finally:
            self._check(self._handle.lazyck_record(None))

    @contextlib.contextmanager
    def on_event(self, callback: Callable[[Event], object]) -> Iterator[None]:
        """Call `callback` for every compile (as it begins and as it ends), wait and load within the
        block.

        The calls are made on a thread of their own, in order and some time after the event. The
        block does not end before all events up to then are reported. An exception of the callback
        is printed and goes no further. A library can have only one callback at a time. Raises
        `CompileError` if a callback takes more than ten seconds at the end.
        """

        def hear(event: Any, _data: object) -> None:
            callback(facts_of(Event, event.contents))

        listener = LISTENER(hear)
        self._check(self._handle.lazyck_set_listener(listener, None))
        _LISTENERS[self.path] = self, listener
        try:
            yield
        finally:
            self._stop_listening()

    def _stop_listening(self) -> None:
        self._check(self._handle.lazyck_set_listener(LISTENER(), None))  # waits for a running callback
        _LISTENERS.pop(self.path, None)

    @contextlib.contextmanager
    def on_compile(self, callback: Callable[[Event], object]) -> Iterator[None]:
        """Call `callback` as `on_event` does, but only for compiles, as for a progress bar."""
        with self.on_event(lambda event: callback(event) if event.kind == abi.EVENT_COMPILE else None):
            yield


# The callbacks of libraries. If a program ends while another thread is within a `with`, no callback
# may run in an interpreter that is shutting down.
_LISTENERS: dict[str, tuple[Library, object]] = {}


@atexit.register
def _end_listening() -> None:
    for library, _ in list(_LISTENERS.values()):
        with contextlib.suppress(CompileError):
            library._stop_listening()


def drain(libraries: Iterable[Library], timeout: float | None) -> bool:
    """Wait at most `timeout` seconds until nothing is in flight, and return whether that is so."""
    end = None if timeout is None else time.monotonic() + timeout
    while busy := [each for each in libraries if not each._check(each._handle.lazyck_drain(0))]:
        left = LONGEST_LOOK if end is None else min(LONGEST_LOOK, end - time.monotonic())
        if left <= 0:
            return False
        busy[0]._check(busy[0]._handle.lazyck_drain(left))
    return True
