"""A file to upload, as it was when it was opened, and compression by zstd. Decompression stops at
the expected size, because a hostile backend may send a compression bomb."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from lazyck.errors import FormatError
from lazyck.files import open_regular
from lazyck.remote.extras import need

_CHUNK = 1 << 20
_LARGEST_WINDOW = 32 << 20  # bytes that a decompressor keeps in memory
_LEVEL = 3


@dataclass(frozen=True)
class Payload:
    path: str
    sha256: str
    size: int


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Payload]:
    """Open a file and yield a payload that stays valid if the file is unlinked. Raises
    `OSError`."""
    with open_regular(path) as f:
        h = hashlib.sha256()
        for part in parts_of(f):
            h.update(part)
        yield _contents(f, h.hexdigest())


@contextlib.contextmanager
def compressing(payload: Payload) -> Iterator[Callable[[], Payload]]:
    """Yield a function that returns the contents compressed, in a file that is made at its first
    call. The function raises `RemoteError` if zstandard is not installed."""
    with tempfile.TemporaryFile(prefix="lazyck-") as file:

        @lru_cache
        def get() -> Payload:
            h = hashlib.sha256()
            with open(payload.path, "rb") as f:
                for part in compressed(parts_of(f)):
                    h.update(part)
                    file.write(part)
            file.flush()
            return _contents(file, h.hexdigest())

        yield get


def _contents(file: IO[bytes], sha256: str) -> Payload:
    return Payload(f"/proc/{os.getpid()}/fd/{file.fileno()}", sha256, file.tell())


def parts_of(file: IO[bytes]) -> Iterator[bytes]:
    while part := file.read(_CHUNK):
        yield part


def _zstd() -> Any:
    return need("zstandard", "remote", "compress=zstd")


class _Source:
    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._left = b""

    def read(self, size: int) -> bytes:
        while not self._left:
            part = next(self._parts, None)
            if part is None:
                return b""
            self._left = part
        data, self._left = self._left[:size], self._left[size:]
        return data


def compressed(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield contents in compressed parts. Raises `RemoteError` if zstandard is not installed."""
    yield from _zstd().ZstdCompressor(level=_LEVEL).read_to_iter(_Source(parts))


def decompressed(parts: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield what compressed parts contain, but no more than `most` bytes and one. Raises
    `FormatError` for what zstd did not write, and `RemoteError` if zstandard is not installed."""
    zstd = _zstd()
    left = most + 1
    try:
        with zstd.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).stream_reader(_Source(parts)) as reader:
            while left > 0 and (part := reader.read(min(left, _CHUNK))):
                left -= len(part)
                yield part
    except zstd.ZstdError as e:
        raise FormatError("it is not what zstd writes") from e
