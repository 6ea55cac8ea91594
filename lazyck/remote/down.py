"""Which tiers failed a moment ago: remembered in the local cache, so that thirty blobs do not wait thirty times.

File: `<cache>/.remote/<16 digits of the label's hash>-<what>`, a line "<seconds since 1970> <why>": until when. `what`
is `all`, or `writes` where only writing fails. A cache that cannot be written remembers nothing for other processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from pathlib import Path

from lazyck.files import write_atomic

DIRECTORY = ".remote"
ALL, WRITES = "all", "writes"
_LONGEST = 7200.0  # a clock that jumped must not keep a tier away


class Memory:
    """What this host knows of tiers that are down; of `cache` None, what this process knows."""

    def __init__(self, cache: Path | None, seconds: float) -> None:
        self._directory = cache / DIRECTORY if cache else None
        self._seconds = seconds
        self._own: dict[str, tuple[float, str]] = {}

    def why(self, label: str, what: str) -> str:
        """Why the tier is passed over; "" if it is not."""
        name = _file_name(label, what)
        until, why = self._own.get(name) or self._read(name)
        left = until - time.time()
        return why if 0 < left < min(3 * self._seconds, _LONGEST) else ""

    def note(self, label: str, what: str, why: str) -> None:
        """It failed. Hosts try it again at different times."""
        name = _file_name(label, what)
        until = time.time() + self._seconds * random.uniform(0.75, 1.25)
        self._own[name] = (until, why)
        if self._directory:
            with contextlib.suppress(OSError):
                self._directory.mkdir(mode=0o700, exist_ok=True)
                write_atomic(self._directory / name, f"{until:.3f} {why}\n".encode(errors="replace"), 0o600)

    def _read(self, name: str) -> tuple[float, str]:
        try:
            with open((self._directory or Path("/nonexistent")) / name, "rb") as f:
                until, _, why = f.read(1000).decode("utf-8", "replace").partition("\n")[0].partition(" ")
            return float(until), why
        except (OSError, ValueError):
            return 0.0, ""


def _file_name(label: str, what: str) -> str:
    return f"{hashlib.sha256(label.encode()).hexdigest()[:16]}-{what}"
