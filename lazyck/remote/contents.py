"""Opens a file to upload, so that what is uploaded is the file as it was when it was opened."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lazyck.files import open_regular


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
