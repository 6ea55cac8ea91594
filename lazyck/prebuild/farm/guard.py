"""Keep dask from running code in this process: no pickle may load anything but bytes and Python's
own exceptions.

dask's client unpickles what a message marks as pickled, and ignores its `deserializers`: in
the handshake, in answers and in the scheduler's stream, and also types, exceptions, tracebacks and
warnings of workers. A pickle can run code only by what it loads by name. Python announces each such
name (the audit event `pickle.find_class`) for every unpickler. The guard refuses it in all threads.
"""

import builtins
import pickletools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from lazyck.errors import BuildError
from lazyck.visible import visible

# Creating one of these runs no foreign code. Exceptions that are not an `Exception` are left out,
# since they would end the program.
_ALLOWED = {("builtins", "bytes")} | {
    ("builtins", name) for name, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, Exception)
}
# What honest workers and schedulers send besides: tracebacks, and errors of dask. It is refused
# too, but not reported.
_EXPECTED = ("tblib", "distributed", "dask", "tornado", "asyncio", "concurrent")
_MOST = 20
_LONGEST = 300
_MOST_READ = 64 << 10


class LoadingRefusedError(EOFError, TypeError):
    """A pickle tried to load something. dask closes the connection for an `EOFError`, as if the
    data were garbled, and takes a `TypeError` for a traceback that cannot be read."""


@dataclass
class Guard:
    """The names, in printable form, of what was refused and would have run code."""

    refused: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raise `BuildError` if something came that no honest cluster sends."""
        if self.refused:
            raise BuildError(
                f"the cluster sent a pickle that loads {self.refused[0]}, which would have run code here: refused",
                "find out which worker or scheduler is not what it should be (SECURITY.md); nothing of it was run",
            )


_active: list[Guard] = []


@cache
def _install() -> None:
    sys.addaudithook(_refuse)  # a hook cannot be removed; without an active guard it does nothing


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
    """Return an exception's message as one line. If it came as a pickle that was refused, the
    pickle is searched for its class and its first text."""
    data = error.args[0] if error.args else None
    if not isinstance(data, bytes):
        return visible(repr(error)[:_LONGEST])
    try:
        words = [word for _, word, _ in pickletools.genops(data[:_MOST_READ]) if isinstance(word, str)]
    except ValueError:  # cut short, or not a pickle
        words = []
    names = [i for i, word in enumerate(words) if word.endswith("Error")]
    if not names:
        return "an exception that cannot be shown"
    texts = [word for word in words[names[0] + 1 :] if word not in ("__dict__", "args")]
    return visible(": ".join([words[names[0]], *texts[:1]])[:_LONGEST])


@contextmanager
def refusing_pickles() -> Iterator[Guard]:
    """Refuse pickles in all threads until the block ends."""
    _install()
    guard = Guard()
    _active.append(guard)
    try:
        yield guard
    finally:
        _active.remove(guard)
