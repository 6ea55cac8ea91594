"""One question to a tier and its answer: how long it takes at most, how much is read, and that it ends when it is given
up.

The limits hold for all backends here, below their libraries: what a backend connects to it puts into the exchange
(`hold`), and what it reads is counted (`lazyck.remote.bounded_socket`). When an exchange is given up, all that it holds
is ended, so that no thread waits for it or reads on, whatever the library around the socket does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

# Headers, redirects, texts of errors, the words of a protocol: what comes beside what was asked for, in bytes.
BESIDE = 256 << 10
_GRACE = 0.5  # seconds in which a thread notices that what it waited for was ended


class Ended(OSError):
    """The exchange is over. An OSError, so that libraries close the connection, and hide it from nobody."""


class Endable(Protocol):
    """What an exchange holds: a connection, a process."""

    def end(self) -> None:
        """End it at once, whoever waits for it. May be called more than once, and from any thread."""

    def release(self) -> None:
        """The exchange needs it no longer."""


class Exchange:
    """How far the exchange may go, and what it holds."""

    def __init__(self, most: int) -> None:
        self._left = most + BESIDE
        self._left_of_answer = self._left
        self._lock = threading.Lock()
        self._held: list[Endable] = []
        self.is_ended = False
        self.has_too_much = False

    def check(self) -> None:
        """Raises `Ended` if it is over."""
        if self.is_ended:
            raise Ended("given up")

    def expect(self, most: int) -> None:
        """The next answer has `most` bytes, of those of the exchange: what a library collects in memory."""
        self._left_of_answer = most + BESIDE

    def may_read(self, wanted: int) -> int:
        """How many of so many bytes may be read now. Raises `Ended` if none."""
        self.check()
        left = min(self._left, self._left_of_answer)
        if left <= 0:
            self.has_too_much = True
            self.end()
            raise Ended("more than was asked for")
        return min(wanted, left)

    def has_read(self, size: int) -> None:
        """So many bytes were. Raises `Ended` if it is over: then what looks like the end of an answer is none."""
        self._left -= size
        self._left_of_answer -= size
        self.check()

    def hold(self, what: Endable) -> None:
        """It is ended with the exchange. Raises `Ended` if that was before."""
        with self._lock:
            if not self.is_ended:
                self._held.append(what)
                return
        what.end()
        what.release()
        self.check()

    def end(self) -> None:
        """Give it up: what it holds is ended."""
        with self._lock:
            self.is_ended = True
            for each in self._held:
                each.end()

    def close(self) -> None:
        """It has come to its end."""
        with self._lock:
            self.is_ended = True
            held, self._held = self._held, []
        for each in held:
            each.release()


_now = threading.local()


def current() -> Exchange:
    """The exchange that this thread works for. Raises `Ended` where there is none: nothing is read without a limit."""
    exchange: Exchange | None = getattr(_now, "exchange", None)
    if exchange is None:
        raise Ended("no exchange")
    return exchange


class Work(Generic[T]):
    """An exchange on a thread of its own. The thread is given up when it takes too long, and ends then, unless it waits
    for what nothing can end: a name server, a hard NFS mount. Also then it does nothing more when it goes on."""

    def __init__(self, work: Callable[[], T], most: int) -> None:
        self.exchange = Exchange(most)
        self._work = work
        self._found: list[T] = []
        self._error: BaseException | None = None

    def result(self, seconds: float) -> T:
        """What the work returns or raises. Raises `TimeoutError`."""
        thread = threading.Thread(target=self._run, name="lazyck-exchange", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self.exchange.end()
            thread.join(_GRACE)
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        _now.exchange = self.exchange
        try:
            self._found.append(self._work())
        except BaseException as e:
            self._error = e
        finally:
            with contextlib.suppress(OSError):
                self.exchange.close()
