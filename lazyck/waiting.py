"""Says what lazyck is busy with when that takes long, so that no wait is silent."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lazyck.terminal import is_quiet

FIRST = 2.0  # seconds until the first line
INTERVAL = 30.0  # seconds between lines where they do not replace each other
_REDRAW = 1.0
_WIPE = "\r\x1b[K"


@contextmanager
def saying(what: str) -> Iterator[None]:
    """While the block runs, and once that has taken two seconds, stderr says `what` ("compiling the runtime").

    On a terminal that is a line which renews itself and goes away at the end, elsewhere one every half minute and one
    when it is done. A block within such a block speaks in its place. LAZYCK_LOG=warn silences it.
    """
    if is_quiet():
        yield
        return
    speaker = _Speaker(what)
    try:
        yield
        speaker.succeeded = True
    finally:
        speaker.end()


class _Speaker:
    """Speaks of one wait, on a thread of its own."""

    def __init__(self, what: str) -> None:
        self.succeeded = False
        self._what = what
        self._ended = threading.Event()
        self._start = time.monotonic()
        self._thread = threading.Thread(target=self._speak, daemon=True)
        _under_way.append(self)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        _under_way.remove(self)

    def _speak(self) -> None:
        on_terminal = sys.stderr.isatty()
        has_spoken = False
        while not self._ended.wait(_REDRAW if has_spoken and on_terminal else INTERVAL if has_spoken else FIRST):
            if _under_way[-1] is not self:
                continue
            has_spoken = True
            what = f"lazyck: {self._what} ({self._spent()}"
            _write(f"{_WIPE}{what})" if on_terminal else f"{what} so far)\n")
        if has_spoken and on_terminal:
            _write(_WIPE)
        elif has_spoken and self.succeeded:
            _write(f"lazyck: {self._what}: done in {self._spent()}\n")

    def _spent(self) -> str:
        return f"{time.monotonic() - self._start:.0f} s"


_under_way: list[_Speaker] = []  # the latest speaks


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # it is closed, or its reader is gone: nobody is waiting for lines
        pass
