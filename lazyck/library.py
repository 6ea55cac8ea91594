"""Lazy libraries of this process, from Python: what they have, making blobs ready, records, and what they compile.

Every function here works by the C interface that each lazy library exports (`lazyck.h`). Libraries that torch, ctypes
or an extension module has loaded already are found by their path, or among all that this process has loaded.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from lazyck import abi
from lazyck.config import setting
from lazyck.errors import LazyckError

__all__ = ["CompileError", "Event", "Library", "Prefetch", "Progress", "Stats", "load", "loaded", "record"]


class CompileError(LazyckError, RuntimeError):
    """A blob could not be made ready: `str()` is the runtime's message, with the compiler's first error, the log's path
    and the command to repeat it. (A failing *call* of a blob throws `lazyck::CompileError` in C++, which pybind11 and
    torch turn into a RuntimeError with the same text.)"""


@dataclass(frozen=True)
class Stats:
    """Counts since the library's first lazy call; `compile_ns` is wall time in nanoseconds."""

    blobs: int
    symbols: int
    loaded: int
    hits: int
    misses: int
    compiles: int
    failures: int
    damaged: int
    compile_ns: int
    remote_hits: int
    remote_refused: int
    remote_skipped: int


@dataclass(frozen=True)
class Progress:
    """How far a prefetch is: blobs in all, ready, and failed."""

    total: int
    ready: int
    failed: int
    is_over: bool


@dataclass(frozen=True)
class Event:
    """Something that happened to a blob.

    `kind` is "compile", "wait" or "load"; `what` says of a failure why, of a wait for what, of a load from where;
    `start` is in seconds since 1970, `seconds` how long it took (0 as a compile begins: `has_ended` is false then),
    `peak_kib` the memory of the compiler's largest process, `bytes` the size of the entry (0: unknown).
    """

    kind: str
    library: str
    blob: str
    arch: str
    what: str
    start: float
    seconds: float
    peak_kib: int
    bytes: int
    has_ended: bool
    has_failed: bool


class _Stats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), *((name, ctypes.c_uint64) for name in Stats.__dataclass_fields__)]


class _Progress(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("size", "total", "ready", "failed", "is_over")]


class _Event(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint64),
        *((name, ctypes.c_char_p) for name in ("kind", "library", "blob", "arch", "what")),
        ("start", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("peak_kib", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("has_ended", ctypes.c_int),
        ("has_failed", ctypes.c_int),
    ]


_LISTENER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Event), ctypes.c_void_p)

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "lazyck_abi_version": (ctypes.c_int, []),
    "lazyck_last_error": (ctypes.c_char_p, []),
    "lazyck_set_cache_dir": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_get_stats": (ctypes.c_int, [ctypes.POINTER(_Stats)]),
    "lazyck_prefetch": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_clear_failures": (ctypes.c_int, []),
    "lazyck_blob_count": (ctypes.c_int, []),
    "lazyck_blob_name": (ctypes.c_char_p, [ctypes.c_int]),
    "lazyck_is_cached": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_forbid_jit": (ctypes.c_int, [ctypes.c_int]),
    "lazyck_record": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_speculate": (ctypes.c_int, [ctypes.c_char_p]),
    "lazyck_job_start": (ctypes.c_void_p, [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t, ctypes.c_uint]),
    "lazyck_job_replay": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_uint]),
    "lazyck_job_wait": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_double, ctypes.POINTER(_Progress)]),
    "lazyck_job_error": (ctypes.c_char_p, [ctypes.c_void_p]),
    "lazyck_job_cancel": (None, [ctypes.c_void_p]),
    "lazyck_job_free": (None, [ctypes.c_void_p]),
    "lazyck_set_listener": (ctypes.c_int, [_LISTENER, ctypes.c_void_p]),
}


class _Info(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _text(value: bytes | None) -> str:
    return os.fsdecode(value or b"")


class Library:
    """A lazy library that this process has loaded. Made by `load` or `loaded`."""

    def __init__(self, handle: ctypes.CDLL, path: str) -> None:
        self.path = path
        self._handle = handle
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(handle, name)
            function.restype, function.argtypes = result, arguments

    def __repr__(self) -> str:
        return f"lazyck.Library({self.path!r})"

    def _check(self, status: int) -> int:
        if status < 0:
            raise self._error()
        return status

    def _error(self) -> CompileError:
        return CompileError(_text(self._handle.lazyck_last_error()) or f"{self.path}: unknown error")

    @cached_property
    def _names(self) -> tuple[str, ...]:
        count = self._check(self._handle.lazyck_blob_count())
        return tuple(_text(self._handle.lazyck_blob_name(i)) for i in range(count))

    def blobs(self) -> tuple[str, ...]:
        """The names of all its blobs, in the manifest's order."""
        return self._names

    def is_cached(self, blob: str) -> bool:
        """Whether a call of the blob now would find it compiled. Raises `CompileError` for an unknown name."""
        return self._check(self._handle.lazyck_is_cached(os.fsencode(blob))) == 1

    def stats(self) -> Stats:
        """Counts since the first lazy call."""
        out = _Stats(ctypes.sizeof(_Stats))
        self._check(self._handle.lazyck_get_stats(ctypes.byref(out)))
        return Stats(*(int(getattr(out, name)) for name in Stats.__dataclass_fields__))

    def set_cache_dir(self, path: str | os.PathLike[str]) -> None:
        """Use this cache for what is not loaded yet. Raises `CompileError` when it cannot be one."""
        self._check(self._handle.lazyck_set_cache_dir(os.fsencode(path)))

    def clear_failures(self) -> int:
        """Let blobs that the compiler refused be tried again; returns how many there were."""
        return self._check(self._handle.lazyck_clear_failures())

    def prefetch(
        self,
        what: Iterable[str] | os.PathLike[str] | str = "*",
        *,
        wait: bool = True,
        workers: int = 0,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> Prefetch:
        """Make blobs ready in the background, `workers` at a time (0: `LAZYCK_JOBS`).

        `what` is a list of names, the `Path` of a profile, or one shell pattern for names. With `wait`, returns when
        all are ready, and calls `on_progress` now and then; raises `CompileError` with the first failure then. A name
        or pattern that fits no blob is an error; blobs of a profile that the library does not have are left out, with a
        warning in the log.
        """
        job: int | None
        if isinstance(what, os.PathLike):
            job = self._handle.lazyck_job_replay(os.fsencode(what), workers)
        else:
            names = self._matching(what) if isinstance(what, str) else list(what)
            words = (ctypes.c_char_p * len(names))(*map(os.fsencode, names))
            job = self._handle.lazyck_job_start(words, len(names), workers)
        if not job:
            raise self._error()
        prefetch = Prefetch(self, job)
        if wait:
            prefetch.wait(on_progress=on_progress)
        return prefetch

    def _matching(self, pattern: str) -> list[str]:
        if found := [name for name in self.blobs() if fnmatchcase(name, pattern)]:
            return found
        raise CompileError(f"{self.path}: no blob matches {pattern!r}", "Library.blobs() has the names")

    @contextlib.contextmanager
    def forbid_jit(self) -> Iterator[None]:
        """Within it a blob that is not cached is an error instead of a compile."""
        before = self._check(self._handle.lazyck_forbid_jit(1))
        try:
            yield
        finally:
            self._check(self._handle.lazyck_forbid_jit(before))

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
                    kind=_text(e.kind), library=_text(e.library), blob=_text(e.blob), arch=_text(e.arch),
                    what=_text(e.what), start=e.start, seconds=e.seconds, peak_kib=int(e.peak_kib),
                    bytes=int(e.bytes), has_ended=bool(e.has_ended), has_failed=bool(e.has_failed),
                )
            )  # fmt: skip

        listener = _LISTENER(hear)
        self._check(self._handle.lazyck_set_listener(listener, None))
        _LISTENERS[self.path] = self, listener
        try:
            yield
        finally:
            self._stop_listening()

    def _stop_listening(self) -> None:
        self._check(self._handle.lazyck_set_listener(_LISTENER(), None))  # waits for a callback that runs
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


class Prefetch:
    """Blobs that are being made ready in the background."""

    def __init__(self, library: Library, job: int) -> None:
        self.library = library
        self._job: int | None = job

    def __del__(self) -> None:
        if self._job:
            self.library._handle.lazyck_job_free(self._job)

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.wait()
        else:
            self.cancel()

    def _look(self, seconds: float) -> Progress:
        out = _Progress(ctypes.sizeof(_Progress))
        self.library._check(self.library._handle.lazyck_job_wait(self._job, seconds, ctypes.byref(out)))
        return Progress(int(out.total), int(out.ready), int(out.failed), bool(out.is_over))

    def progress(self) -> Progress:
        """How far it is."""
        return self._look(0)

    def wait(
        self, timeout: float | None = None, *, on_progress: Callable[[Progress], object] | None = None
    ) -> Progress:
        """Wait until it is over, at most `timeout` seconds (`None`: for ever), and say how far it is.

        Ctrl-C gets through. Raises `CompileError` with the first failure once it is over.
        """
        end = None if timeout is None else time.monotonic() + timeout
        last = None
        while True:
            now = self._look(0.2 if end is None else max(0.0, min(0.2, end - time.monotonic())))
            if on_progress is not None and now != last:
                on_progress(now)
            last = now
            if now.is_over:
                break
            if end is not None and time.monotonic() >= end:
                return now
        if now.failed:
            raise CompileError(_text(self.library._handle.lazyck_job_error(self._job)))
        return now

    def cancel(self) -> None:
        """Begin nothing more."""
        if self._job:
            self.library._handle.lazyck_job_cancel(self._job)


def _own(handle: ctypes.CDLL) -> str | None:
    """The path of the lazy library behind `handle`: itself, or one that it depends on."""
    return _place_of(handle, "lazyck_abi_version")


def _place_of(handle: ctypes.CDLL, symbol: str) -> str | None:
    """The path of the library that defines `symbol`, of those that a look-up by `handle` goes through."""
    try:
        address = ctypes.cast(getattr(handle, symbol), ctypes.c_void_p)
    except AttributeError:
        return None
    here = _Info()
    if not ctypes.CDLL(None).dladdr(address, ctypes.byref(here)):
        return None
    return _text(here.path)


def load(path: str | os.PathLike[str], mode: int = ctypes.RTLD_LOCAL) -> Library:
    """The lazy library at `path`, loaded if it is not yet, by its name as `dlopen` takes it.

    Raises `OSError` when it cannot be loaded, `LazyckError` when it is not a lazy library or of an older lazyck.
    """
    handle = ctypes.CDLL(os.fspath(path), mode)
    own = _own(handle)
    if own is None or not _is_same(own, os.fspath(path)):
        raise LazyckError(f"{os.fspath(path)} is not a lazy library", "`lazyck build full` makes one")
    version = int(handle.lazyck_abi_version())
    if version < abi.API_VERSION:
        raise LazyckError(
            f"{own}: its interface has version {version}, this lazyck needs {abi.API_VERSION}",
            "link it again: lazyck build quick --tmp-dir DIR",
        )
    return Library(handle, own)


def _is_same(own: str, given: str) -> bool:
    if "/" not in given:  # found on the loader's search path
        return True
    try:
        return os.path.samefile(own, given)
    except OSError:
        return False


def loaded(symbol: str = "") -> list[Library]:
    """The lazy libraries that this process has loaded, whoever loaded them: all, or those that define `symbol`, a
    (mangled) name such as `PyInit_attn`."""
    found: dict[str, Library] = {}
    with open("/proc/self/maps", errors="surrogateescape") as maps:
        paths = dict.fromkeys(line.split(None, 5)[5].rstrip("\n") for line in maps if " r-xp " in line and "/" in line)
    for path in paths:
        if not path.startswith("/"):
            continue
        try:
            handle = ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_NOLOAD)
        except OSError:
            continue
        own = _own(handle)
        if own is None or not _is_same(own, path) or int(handle.lazyck_abi_version()) < abi.API_VERSION:
            continue
        if not symbol or _place_of(handle, symbol) == own:
            found[path] = Library(handle, own)
    return list(found.values())


class record(contextlib.ContextDecorator):
    """Warm up, capture and replay, in one: `with lazyck.record("run.profile"):` or `@lazyck.record("run.profile")`.

    The first run appends to the profile what it calls. Later runs make that ready first (`replay`), several at a time,
    and then record too. With `LAZYCK_DISABLE_JIT=1` such a run shows that nothing is left to compile. `libraries` are
    those to record (default: all that are loaded when it begins; those loaded within it record too, and replay in the
    background at their first call). Raises `CompileError` if a recorded blob cannot be made ready any more.
    """

    def __init__(
        self, profile: str | os.PathLike[str], *, replay: bool = True, libraries: Iterable[Library] | None = None
    ) -> None:
        self.profile = os.path.abspath(os.fspath(profile))
        self.replay = replay
        self.libraries = None if libraries is None else list(libraries)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> record:
        libraries = loaded() if self.libraries is None else self.libraries
        has_profile = os.path.exists(self.profile)
        for library in libraries:
            if self.replay and has_profile:
                library.prefetch(Path(self.profile))
            self._stack.enter_context(library.record(self.profile))
        if self.libraries is None:
            self._stack.enter_context(setting(abi.ENV_RECORD, self.profile))
            if self.replay and has_profile:
                self._stack.enter_context(setting(abi.ENV_PREFETCH, self.profile))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.libraries is None:
            for library in loaded():  # those that began within it
                library._check(library._handle.lazyck_record(None))
        self._stack.close()
