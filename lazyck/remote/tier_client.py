"""A tier in use: each request is bounded, and a tier that failed is not asked again soon."""

import hashlib
import time
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any, TypeVar

from lazyck.errors import FormatError, LazyckError
from lazyck.remote.backend import Backend, BackendError, open_backend
from lazyck.remote.circuit_breaker import ALL, WRITES, CircuitBreaker
from lazyck.remote.exchange import LimitExceeded, current, within
from lazyck.remote.payload import decompressed
from lazyck.remote.tiers import Tier, Times

T = TypeVar("T")


class TierDown(LazyckError):
    """A tier is skipped for now. The message says which and why."""


class TierClient:
    """One tier. If it cannot do what it is asked, methods raise `TierDown`, and nothing else."""

    def __init__(self, tier: Tier, times: Times, breaker: CircuitBreaker) -> None:
        self.tier = tier
        self.label = tier.label
        self._times = times
        self._breaker = breaker
        self._backend: Backend | None = None
        self._unusable = ""  # a library or a token is missing, which time does not change

    def open(self) -> Backend:
        """Return the tier's backend. Raises `LazyckError` if a library or token is missing."""
        if self._backend is None:
            self._backend = open_backend(self.tier, self._times)
        return self._backend

    def read(self, name: str, most: int) -> bytes | None:
        """Return a small object, or None if there is none. A longer object is a failure."""

        def work(backend: Backend) -> bytes | None:
            parts = backend.read(name, most + 1)
            return None if parts is None else b"".join(parts)

        began = time.monotonic()
        data = self._do(work, self._times.whole(most), most=most + 1)
        if data is not None and len(data) > most:
            raise self._failed(ALL, "answers with more than a record holds", began)
        return data

    def fetch(self, name: str, size: int, to: Path, unpacked: int = 0) -> str | None:
        """Write the first `size` bytes of an object to a new file. Return their SHA-256, or None if
        there is no object.

        If `unpacked` is not 0, the object is compressed: what it contains, which should have so
        many bytes, is written and hashed. The result is an empty string if it contains nothing.
        """

        def work(backend: Backend) -> str | None:
            parts = backend.read(name, size)
            if parts is None:
                return None
            h = hashlib.sha256()
            exchange = current()
            exchange.check()  # the caller removes the file when it gives up
            with open(to, "xb") as f:
                try:
                    for part in decompressed(parts, unpacked) if unpacked else parts:
                        exchange.check()
                        h.update(part)
                        f.write(part)
                except FormatError:
                    return ""
            return h.hexdigest()

        return self._do(work, self._times.whole(size), most=size)

    def _ask(self, method: str, *words: Any, size: int = 0) -> Any:
        """Call a method of `Backend`, which writes `size` bytes of a file."""
        seconds = self._times.whole(size + sum(len(word) for word in words if isinstance(word, bytes)))
        return self._do(lambda backend: getattr(backend, method)(*words), seconds, ALL if method == "size" else WRITES)

    size = partialmethod(_ask, "size")
    write = partialmethod(_ask, "write")
    create = partialmethod(_ask, "create")
    replace = partialmethod(_ask, "replace")
    delete = partialmethod(_ask, "delete")

    def why_down(self, for_writes: bool = False) -> str:
        """Return why the tier is not asked, or an empty string if it is asked."""
        why = self._unusable or self._breaker.why(self.label, ALL)
        why = why or (self._breaker.why(self.label, WRITES) if for_writes else "")
        return f"{self.label}: {why}" if why else ""

    def _do(self, work: Callable[[Backend], T], seconds: float, what: str = ALL, most: int = 0) -> T:
        """Ask the tier, in an exchange whose answer has at most `most` bytes."""
        if why := self.why_down(what == WRITES):
            raise TierDown(why)
        began = time.monotonic()
        try:
            backend = self.open()
            return within(seconds, most, lambda: work(backend))
        except LimitExceeded as e:
            raise self._failed(what, "sends more than was asked for", began) from e
        except BackendError as e:
            raise self._failed(what, e.message, began) from e
        except LazyckError as e:
            self._unusable = e.render().replace("\n", ";")
            raise TierDown(f"{self.label}: {self._unusable}") from e
        except TimeoutError as e:
            raise self._failed(what, f"did not finish within {seconds:.1f} s", began) from e
        # Each backend's library has errors of its own, whose texts may hold passwords.
        except Exception as e:
            raise self._failed(what, f"fails ({type(e).__name__})", began) from e

    def _failed(self, what: str, why: str, began: float) -> TierDown:
        self._breaker.note(self.label, what, why, time.monotonic() - began)
        return TierDown(f"{self.label}: {why}")
