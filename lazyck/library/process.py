"""The lazy libraries of this process: load one, find those that are loaded, make blobs of all of
them ready, let none of them compile, or record what they are called for."""

import contextlib
import ctypes
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from lazyck import abi
from lazyck.errors import CompileError, LazyckError
from lazyck.library.c_interface import InfoStruct, text_of
from lazyck.library.library import ALL, BLOCKS, Library, fitting
from lazyck.library.library import drain as drained
from lazyck.library.prefetch import Prefetch
from lazyck.settings.environment import setting

_MARK = "lazyck_abi_version"  # each lazy library defines it


def _place_of(handle: ctypes.CDLL, symbol: str) -> str | None:
    """Return the path of the library in which a look-up in `handle` finds `symbol`."""
    try:
        address = ctypes.cast(getattr(handle, symbol), ctypes.c_void_p)
    except AttributeError:
        return None
    here = InfoStruct()
    if not ctypes.CDLL(None).dladdr(address, ctypes.byref(here)):
        return None
    return text_of(here.path)


def landlock_version() -> int:
    """Return the version of Landlock by which a process can limit its own reads, or 0 if there is
    none: the kernel is older than 5.13, was started without it, or a container forbids it."""
    found = ctypes.CDLL(None).syscall(abi.LANDLOCK_CREATE_RULESET, None, 0, abi.LANDLOCK_ASK_VERSION)
    return max(0, int(found))


def load(path: str | os.PathLike[str], mode: int = ctypes.RTLD_LOCAL) -> Library:
    """Return the lazy library at `path`, and load it if it is not loaded yet. `path` may be a name,
    as for `dlopen`.

    Raises `OSError` if it cannot be loaded, and `LazyckError` if it is not a lazy library or is
    from an older lazyck.
    """
    handle = ctypes.CDLL(os.fspath(path), mode)
    own = _place_of(handle, _MARK)
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
    """Return the lazy libraries that this process has loaded, no matter who loaded them: all, or
    those that define `symbol`, a (mangled) name such as `PyInit_attn`."""
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
        own = _place_of(handle, _MARK)
        if own is None or not _is_same(own, path) or int(handle.lazyck_abi_version()) < abi.API_VERSION:
            continue
        if not symbol or _place_of(handle, symbol) == own:
            found[path] = Library(handle, own)
    return list(found.values())


def prefetch(what: Iterable[str] | os.PathLike[str] | str = "*", *, workers: int = 0) -> Prefetch:
    """Begin to make blobs of all loaded lazy libraries ready in the background, `workers` of each
    library at a time (0: `LAZYCK_JOBS`), and return at once. Wait for the result, or await it.

    `what` is a list of names, the `Path` of a profile, or one shell pattern for names. Raises
    `LazyckError` if no lazy library is loaded, and `CompileError` for a name that no library has
    and for a pattern that fits none.
    """
    libraries = loaded()
    if not libraries:
        raise LazyckError("this process has loaded no lazy library", "load it, or import its module, before that")
    if isinstance(what, os.PathLike):
        return Prefetch([(library, library._begin(what, workers)) for library in libraries])
    wanted = what if isinstance(what, str) else list(what)
    parts = [(library, fitting(library.blobs(), wanted)) for library in libraries]
    found = {name for _, names in parts for name in names}
    for name in [wanted] if isinstance(wanted, str) else wanted:
        if not found or (name not in found and name != wanted):
            raise CompileError(f"no loaded lazy library has a blob {name!r}", "Library.blobs() returns the names")
    return Prefetch([(library, library._begin(names, workers)) for library, names in parts if names])


def ready(is_ready: bool = True) -> None:
    """Declare that warm-up is over: from now on a call that has to compile raises under
    `LAZYCK_JIT=error`, and gets a warning in the log under `LAZYCK_JIT=warn`. With False, the
    program warms up again.

    This applies to all lazy libraries that are loaded, and to those that are loaded later. If none
    is loaded, as after an ahead-of-time build, nothing happens.
    """
    for library in loaded():
        library.ready(is_ready)


def drain(timeout: float | None = None) -> bool:
    """Wait until nothing of the loaded lazy libraries is in flight: calls that make a blob ready,
    prefetches, and what is compiled in the background. Waits at most `timeout` seconds (`None`: for
    ever), and returns whether nothing is in flight.

    Use it before a fork, a graph capture or a health check. It does not keep new work from
    beginning. Ctrl-C interrupts the wait.
    """
    return drained(loaded(), timeout)


@contextlib.contextmanager
def forbid_jit() -> Iterator[None]:
    """Within the block a call that would have to compile raises instead, as under
    `LAZYCK_JIT=off`.

    This applies to all lazy libraries, also to those that are loaded within the block, and to all
    threads, since another thread may make the call (autograd's, or a pool's). It applies to a
    prefetch that is under way, and to programs that are started within the block. Blocks may be
    nested and may overlap. When the last one ends, also by an exception, each library may again do
    what it might before. Raises `LazyckError` if a variable of the environment makes no sense.
    """
    with BLOCKS.forbid(ALL, loaded):
        yield


class record(contextlib.ContextDecorator):
    """Record what a run calls, and make it ready before the next run: `with
    lazyck.record("run.profile"):` or `@lazyck.record("run.profile")`.

    The first run appends what it calls to the profile. Later runs first make that ready (`replay`),
    several blobs at a time, and then record too. With `LAZYCK_JIT=off` such a run proves that
    nothing is left to compile. `libraries` are those to record. By default they are all libraries
    that are loaded when the block begins. Libraries that are loaded within the block record too,
    and replay in the background at their first call. Raises `CompileError` if a recorded blob can
    no longer be made ready.
    """

    def __init__(
        self, profile: str | os.PathLike[str], *, replay: bool = True, libraries: Iterable[Library] | None = None
    ) -> None:
        self.profile = os.path.abspath(os.fspath(profile))
        self.replay = replay
        self.libraries = None if libraries is None else list(libraries)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "record":
        libraries = loaded() if self.libraries is None else self.libraries
        has_profile = os.path.exists(self.profile)
        for library in libraries:
            if self.replay and has_profile:
                library.prefetch(Path(self.profile)).wait()
            self._stack.enter_context(library.record(self.profile))
        if self.libraries is None:
            self._stack.enter_context(setting(abi.ENV_RECORD, self.profile))
            if self.replay and has_profile:
                self._stack.enter_context(setting(abi.ENV_PREFETCH, self.profile))
        return self

    def __exit__(self, *_: object) -> None:
        if self.libraries is None:
            for library in loaded():  # libraries that were loaded within the block
                library._check(library._handle.lazyck_record(None))
        self._stack.close()
