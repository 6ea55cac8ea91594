"""Says what lazyck is busy with if that takes long, so that no wait is silent."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lazyck.terminal import is_quiet

FIRST = 2.0  # seconds until the first line
INTERVAL = 30.0  # seconds between lines if they do not replace each other
_REDRAW = 1.0
_WIPE = "\r\x1b[K"


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Say on stderr `what` the block does ("compiling the runtime"), once it has taken two seconds:
    on a terminal in one line, which is redrawn and disappears, elsewhere every half minute and at
    the end. A block inside another one speaks in its place."""
    if is_quiet():
        yield
        return
    start = time.monotonic()
    on_terminal = sys.stderr.isatty()
    ended = threading.Event()
    has_succeeded = False

    def spent() -> str:
        return f"{time.monotonic() - start:.0f} s"

    def speak() -> None:
        has_spoken = False
        while not ended.wait(_REDRAW if has_spoken and on_terminal else INTERVAL if has_spoken else FIRST):
            if _under_way[-1] is thread:
                has_spoken = True
                said = f"lazyck: {what} ({spent()}"
                _write(f"{_WIPE}{said})" if on_terminal else f"{said} so far)\n")
        if has_spoken and on_terminal:
            _write(_WIPE)
        elif has_spoken and has_succeeded:
            _write(f"lazyck: {what}: done in {spent()}\n")

    thread = threading.Thread(target=speak, daemon=True)
    _under_way.append(thread)
    thread.start()
    try:
        yield
        has_succeeded = True
    finally:
        ended.set()
        thread.join()
        _under_way.remove(thread)


_under_way: list[threading.Thread] = []  # the last one speaks


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # stderr is closed, or its reader is gone
        pass
