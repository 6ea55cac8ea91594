"""Bounds one question to a tier and its answer: the time, the bytes that are read, and its end when
it is given up.

The limits hold here for all backends, below their libraries. A backend puts each connection into
the exchange (`hold`), and what it reads is counted (`lazyck.remote.bounded_socket`). When an
exchange is given up, everything that it holds is ended, so that no library's thread waits or reads
on.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

# Bytes that may come in addition to the object: headers, redirects, errors, a protocol's words.
BESIDE = 256 << 10
_GRACE = 0.5  # seconds in which a thread notices that its connection was ended


class Ended(OSError):
    """The exchange is over. As it is an OSError, libraries close the connection."""


class LimitExceeded(OSError):
    """More came than was asked for."""


class Closable(Protocol):
    """A resource of an exchange: a connection or a process."""

    def end(self) -> None:
        """End it at once, and wake threads that wait. Any thread may call this, repeatedly."""

    def release(self) -> None:
        """Let go of it, because the exchange needs it no more."""


class Exchange:
    """The limits of an exchange, and what it holds."""

    def __init__(self, most: int) -> None:
        self._left = most + BESIDE
        self._left_of_answer = self._left
        self._lock = threading.Lock()
        self._held: list[Closable] = []
        self.is_ended = False
        self.has_too_much = False

    def check(self) -> None:
        if self.is_ended:
            raise Ended("given up")

    def expect(self, most: int) -> None:
        """Limit the next answer, which a library collects in memory, to `most` bytes."""
        self._left_of_answer = most + BESIDE

    def may_read(self, wanted: int) -> int:
        """Return how many of `wanted` bytes may be read now. Raises `Ended` if none may."""
        self.check()
        left = min(self._left, self._left_of_answer)
        if left <= 0:
            self.has_too_much = True
            self.end()
            raise Ended("more than was asked for")
        return min(wanted, left)

    def has_read(self, size: int) -> None:
        """Count `size` bytes as read. Raises `Ended` if the exchange is over: an apparent end of
        the answer may be false then."""
        self._left -= size
        self._left_of_answer -= size
        self.check()

    def hold(self, what: Closable) -> None:
        """End `what` with the exchange. Raises `Ended` if the exchange is over already."""
        with self._lock:
            if not self.is_ended:
                self._held.append(what)
                return
        what.end()
        what.release()
        self.check()

    def end(self) -> None:
        """Give the exchange up, and end what it holds."""
        with self._lock:
            self.is_ended = True
            for each in self._held:
                each.end()

    def close(self) -> None:
        """Release what the finished exchange holds."""
        with self._lock:
            self.is_ended = True
            held, self._held = self._held, []
        for each in held:
            each.release()


_now = threading.local()


def current() -> Exchange:
    """Return this thread's exchange. Raises `Ended` without one: all reads have limits."""
    exchange: Exchange | None = getattr(_now, "exchange", None)
    if exchange is None:
        raise Ended("no exchange")
    return exchange


def within(seconds: float, most: int, work: Callable[[], T]) -> T:
    """Do the work in an exchange on a thread of its own. Return what it returns, or raise what it
    raises; `LimitExceeded` if an answer was longer than `most`, and `TimeoutError` if it takes too
    long.

    Then it is given up, and the thread ends, unless it waits for something that nothing can end: a
    name server, a hard NFS mount. Even if that thread goes on later, it does nothing more.
    """
    exchange = Exchange(most)
    found: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        _now.exchange = exchange
        try:
            found.append(work())
        except BaseException as e:
            errors.append(e)
        finally:
            with contextlib.suppress(OSError):
                exchange.close()

    thread = threading.Thread(target=run, name="lazyck-exchange", daemon=True)
    thread.start()
    thread.join(seconds)
    if is_late := thread.is_alive():
        exchange.end()
        thread.join(_GRACE)
    if exchange.has_too_much and (is_late or errors):
        raise LimitExceeded
    if is_late:
        raise TimeoutError
    if errors:
        raise errors[0]
    return found[0]
