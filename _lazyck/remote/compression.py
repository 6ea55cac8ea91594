"""Contents compressed by zstd, as they travel and lie where the store says so. What is unpacked is
bounded by what it should be, however much a lying store has packed into few bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from _lazyck.errors import FormatError
from _lazyck.remote.extras import need

_CHUNK = 1 << 20
_LARGEST_WINDOW = 32 << 20  # bytes that a decompressor keeps in memory
LEVEL = 3


def _zstd() -> Any:
    return need("zstandard", "remote", "compress=zstd")


class _Source:
    """Lets a decompressor read from parts."""

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
    yield from _zstd().ZstdCompressor(level=LEVEL).read_to_iter(_Source(parts))


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


def parts_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the contents of an open file in parts."""
    while part := file.read(_CHUNK):
        yield part
