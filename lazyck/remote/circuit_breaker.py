"""Records in the local cache which tiers failed recently, so that each failure is waited for once.

A tier is skipped for six times as long as its failure took. So a bad tier costs at most a seventh
of the time, and one that refuses connections during a restart is used again after seconds. While
the tier goes on failing, each pause is twice as long as the last one (exponential back-off), from a
tenth of LAZYCK_REMOTE_TIMEOUT to six times that.

The file is `<cache>/.remote/<16 digits of the label's hash>-<what>`, a line "<until> <for> <why>":
the end of the pause in seconds since 1970, and its length in seconds. `what` is `all`, or `writes`
if only writing fails. If the cache cannot be written, other processes do not know of the failure.
"""

import contextlib
import hashlib
import math
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from lazyck.files import open_regular, write_atomic
from lazyck.formats.layout import REMOTE
from lazyck.remote.tiers import Times

ALL, WRITES = "all", "writes"
_TIMES = 6
_LONGEST = 7200.0  # in seconds; a clock that jumped must not keep a tier away


@dataclass(frozen=True)
class _Pause:
    until: float = 0.0
    seconds: float = 0.0
    why: str = ""


class CircuitBreaker:
    """The tiers that are down, as recorded for this host, or without `cache` for this process."""

    def __init__(self, cache: Path | None, times: Times) -> None:
        self._directory = cache / REMOTE if cache else None
        self._times = times
        self._own: dict[str, _Pause] = {}

    def why(self, label: str, what: str) -> str:
        """Return why the tier is skipped, or an empty string if it is not."""
        pause = self._last(_file_name(label, what))
        left = pause.until - time.time()
        return pause.why if 0 < left < min(2 * self._times.down, _LONGEST) else ""

    def note(self, label: str, what: str, why: str, took: float) -> None:
        """Record a failure that took so many seconds. The pause is random, so that hosts retry at
        different times."""
        name = _file_name(label, what)
        now = time.time()
        last = self._last(name)
        seconds = max(_TIMES * took, self._times.idle / 10)
        if now < last.until:  # another exchange failed at the same time
            seconds = max(seconds, last.seconds)
        elif now < last.until + last.seconds:
            seconds = max(seconds, 2 * last.seconds)
        seconds = min(seconds, self._times.down)
        pause = _Pause(now + seconds * random.uniform(0.75, 1.25), seconds, why)
        self._own[name] = pause
        if self._directory:
            line = f"{pause.until:.3f} {pause.seconds:.3f} {why}\n"
            with contextlib.suppress(OSError):
                self._directory.mkdir(mode=0o700, exist_ok=True)
                write_atomic(self._directory / name, line.encode(errors="replace"), 0o600)

    def _last(self, name: str) -> _Pause:
        found = [self._own.get(name, _Pause())]
        with contextlib.suppress(OSError, ValueError):
            if self._directory:
                with open_regular(self._directory / name, os.O_NOFOLLOW) as f:
                    until, seconds, why = f.read(1000).decode("utf-8", "replace").partition("\n")[0].split(" ", 2)
                found.append(_Pause(float(until), float(seconds), why))
        finite = (pause for pause in found if math.isfinite(pause.until) and math.isfinite(pause.seconds))
        return max(finite, key=lambda pause: pause.until)


def _file_name(label: str, what: str) -> str:
    return f"{hashlib.sha256(label.encode()).hexdigest()[:16]}-{what}"
