"""Keeps dask from running code in this process: no pickle may load anything but bytes and the exceptions of Python.

dask's client unpickles whatever a message marks as pickled, whatever deserializers it was given: in the handshake, in
answers and in the stream of the scheduler; types, exceptions, tracebacks and warnings of workers besides. A pickle runs
code only by what it loads by name, and Python announces each such name (the audit event `pickle.find_class`), whoever
unpickles: there it is refused, in all threads.
"""

from __future__ import annotations

import builtins
import pickletools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lazyck.errors import BuildError
from lazyck.visible import visible

# To make one of these runs nothing of anybody's. Those that are no `Exception` would end the program.
_ALLOWED = {("builtins", "bytes")} | {
    ("builtins", name) for name, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, Exception)
}
# What honest workers and schedulers send beside: tracebacks, and errors of dask. Refused as well, without a word.
_EXPECTED = ("tblib", "distributed", "dask", "tornado", "asyncio", "concurrent")
_MOST = 20
_LONGEST = 300
_MOST_READ = 64 << 10


class LoadingRefusedError(EOFError, TypeError):
    """A pickle wanted to load something. dask closes a connection for an `EOFError`, as one whose data is garbled, and
    takes a `TypeError` for a traceback that cannot be read."""


@dataclass
class Guard:
    """What was refused, and would have run code: names, as they can be shown."""

    refused: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raises `BuildError` if something came that no honest cluster sends."""
        if self.refused:
            raise BuildError(
                f"the cluster sent a pickle that loads {self.refused[0]}, which would have run code here: refused",
                "find out which worker or scheduler is not what it should be (SECURITY.md); nothing of it was run",
            )


_active: list[Guard] = []
_is_installed = False


def _refuse(event: str, words: tuple[object, ...]) -> None:
    if event != "pickle.find_class" or not _active:
        return
    module, name = (str(word) for word in words)
    if (module, name) in _ALLOWED:
        return
    shown = visible(f"{module}.{name}")[:100]
    if module.partition(".")[0] not in _EXPECTED:
        for guard in _active:
            guard.refused[_MOST:] = []
            guard.refused.append(shown)
    raise LoadingRefusedError(f"a pickle wants to load {shown}")


def describe(error: Exception) -> str:
    """What an exception says, as one line. One that came as a pickle and was refused is looked through for its class
    and its first text."""
    data = error.args[0] if error.args else None
    if not isinstance(data, bytes):
        return visible(repr(error)[:_LONGEST])
    try:
        words = [word for _, word, _ in pickletools.genops(data[:_MOST_READ]) if isinstance(word, str)]
    except ValueError:  # cut short, or no pickle
        words = []
    names = [i for i, word in enumerate(words) if word.endswith("Error")]
    if not names:
        return "an exception that cannot be shown"
    texts = [word for word in words[names[0] + 1 :] if word not in ("__dict__", "args")]
    return visible(": ".join([words[names[0]], *texts[:1]])[:_LONGEST])


@contextmanager
def refusing_pickles() -> Iterator[Guard]:
    """Until the end of the block, whatever thread unpickles."""
    global _is_installed
    if not _is_installed:
        sys.addaudithook(_refuse)  # there is no way to take one away: outside of such blocks it does nothing
        _is_installed = True
    guard = Guard()
    _active.append(guard)
    try:
        yield guard
    finally:
        _active.remove(guard)
