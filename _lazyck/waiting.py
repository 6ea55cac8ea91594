"""Says what lazyck is busy with if that takes long, so that no wait is silent."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from _lazyck.terminal import is_quiet

FIRST = 2.0  # seconds until the first line
INTERVAL = 30.0  # seconds between lines if they do not replace each other
_REDRAW = 1.0
_WIPE = "\r\x1b[K"


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Say on stderr `what` the block does ("compiling the runtime"), once it has taken two seconds.

    On a terminal this is one line, which is redrawn and disappears at the end. Elsewhere there is a
    line every half minute and one at the end. A block inside another one speaks in its place.
    LAZYCK_LOG=warn silences it.
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
    """Speaks about one wait, on a thread of its own."""

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


_under_way: list[_Speaker] = []  # the last one speaks


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # stderr is closed, or its reader is gone: nobody waits for lines
        pass
