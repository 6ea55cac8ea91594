"""A directory of this process's alone in a cache's `.staging`, for what is not an entry yet."""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path
from types import TracebackType

from lazyck.directory import Directory


class Staging:
    """Named after the process, so that the runtime clears it away if that is killed (runtime/src/staging.cpp). A
    context that removes it. Raises `RefusedError`, `OSError`."""

    def __init__(self, cache: Path, what: str) -> None:
        host = re.sub(r"[^A-Za-z0-9._+-]", "_", socket.gethostname())
        self._name = f"{what}-{os.getpid()}@{host}-{secrets.token_hex(3)}"
        with Directory.make(cache) as root:
            self._above = root.below(".staging", makes=True)
        os.mkdir(self._name, 0o700, dir_fd=self._above.fd)
        self.path = self._above.path / self._name

    def remove(self) -> None:
        """Remove it with all that is in it."""
        self._above.remove_tree(self._name)
        self._above.close()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()
