"""Stores objects in a directory that hosts share: NFS, Lustre, a bind mount. What is written
appears by one rename."""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from lazyck.files import open_regular, write_atomic, write_through
from lazyck.remote.backend import CHUNK, Backend, BackendError, opened
from lazyck.remote.exchange import current
from lazyck.remote.tiers import Tier, Times


class DirectoryBackend(Backend):
    """Files `ac/<hash>` and `cas/<hash>` below a directory. It must exist, so that a directory that
    is not mounted is not filled."""

    def __init__(self, tier: Tier, times: Times) -> None:
        self._base = Path(unquote(urlsplit(tier.url).path))

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        try:
            f = open_regular(self._base / name, os.O_NOFOLLOW)
        except FileNotFoundError:
            self._check_base()
            return None
        except OSError as e:
            # The path is a link, a socket, a device, a FIFO or a directory.
            if e.errno not in (errno.ELOOP, errno.ENXIO, errno.EINVAL):
                raise
            raise BackendError("has something there that is not a file") from e
        return self._parts(f, most)

    def size(self, name: str) -> int | None:
        try:
            info = os.lstat(self._base / name)
        except FileNotFoundError:
            self._check_base()
            return None
        return info.st_size if stat.S_ISREG(info.st_mode) else None

    def write(self, name: str, data: bytes | str) -> None:
        self._check_base()
        with opened(data) as source, write_through(self._base / name) as target:
            exchange = current()
            while part := source.read(CHUNK):
                exchange.check()
                target.write(part)
            exchange.check()

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        self._check_base()
        path = self._base / name
        beside = path.with_name(f".{secrets.token_hex(8)}")
        write_atomic(beside, data)
        try:
            # O_EXCL would show an empty file, and is not reliable on every NFS. A link is.
            os.link(beside, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            with contextlib.suppress(FileNotFoundError):
                path.lstat()
                return False
            write_atomic(path, data)
            return None
        finally:
            beside.unlink(missing_ok=True)
        return True

    def delete(self, name: str) -> bool:
        (self._base / name).unlink(missing_ok=True)
        return True

    def _check_base(self) -> None:
        if not self._base.is_dir():
            raise BackendError("there is no such directory")

    @staticmethod
    def _parts(f: BinaryIO, most: int) -> Iterator[bytes]:
        exchange = current()
        with f:
            while most > 0 and (part := f.read(exchange.may_read(min(most, CHUNK)))):
                exchange.has_read(len(part))
                most -= len(part)
                yield part
