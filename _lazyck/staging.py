"""A directory in a cache's `.staging`, owned by this process, for files that are not entries
yet."""

import os
import re
import secrets
import socket
from pathlib import Path
from types import TracebackType

from _lazyck import abi
from _lazyck.directory import Directory


class Staging:
    """A context manager that creates such a directory and removes it.

    The name contains that of the process, so that the runtime can remove the directory if the
    process is killed (runtime/src/platform/staging.cpp). Raises `RefusedError`, `OSError`.
    """

    def __init__(self, cache: Path, what: str) -> None:
        host = re.sub(r"[^A-Za-z0-9._+-]", "_", socket.gethostname())
        self._name = f"{what}-{os.getpid()}@{host}-{secrets.token_hex(3)}"
        with Directory.make(cache) as root:
            self._above = root.below(abi.CACHE_STAGING, makes=True)
        os.mkdir(self._name, 0o700, dir_fd=self._above.fd)
        self.path = self._above.path / self._name

    def remove(self) -> None:
        """Remove the directory with all its contents."""
        self._above.remove_tree(self._name)
        self._above.close()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.remove()
