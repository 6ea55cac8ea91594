"""Opens a file to upload, so that what is uploaded is the file as it was when it was opened."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from _lazyck.files import open_regular
from _lazyck.remote.compression import compressed, parts_of


@dataclass(frozen=True)
class Contents:
    """A file to upload."""

    path: str
    sha256: str
    size: int


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Contents]:
    """Open a file, whatever becomes of its name, and yield its contents. Raises `OSError`."""
    with open_regular(path) as f:
        h = hashlib.sha256()
        while part := f.read(1 << 20):
            h.update(part)
        yield Contents(f"/proc/{os.getpid()}/fd/{f.fileno()}", h.hexdigest(), f.tell())


@contextlib.contextmanager
def compressing(contents: Contents) -> Iterator[Callable[[], Contents]]:
    """Yield a function that returns the contents compressed, in a file that is made at its first
    call. The function raises `RemoteError` if zstandard is not installed."""
    made: list[Contents] = []
    with tempfile.TemporaryFile(prefix="lazyck-") as file:

        def get() -> Contents:
            if not made:
                h = hashlib.sha256()
                with open(contents.path, "rb") as f:
                    for part in compressed(parts_of(f)):
                        h.update(part)
                        file.write(part)
                file.flush()
                made.append(Contents(f"/proc/{os.getpid()}/fd/{file.fileno()}", h.hexdigest(), file.tell()))
            return made[0]

        yield get
