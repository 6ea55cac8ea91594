"""The 64 bytes at the end of an entry, which say what it is (docs/cache-format.md; runtime/src/entry.cpp)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO

SIZE = 64
MAGIC = b"LAZYCKEN"


@dataclass(frozen=True)
class Trailer:
    """`key` is the entry's key, in 32 hexadecimal digits; `text` the last 16 of that of the text it was made of, or
    ""."""

    key: str
    text: str

    def answers_to(self, key_id: str) -> bool:
        """Whether the entry is for that key, be it its own or that of its text."""
        return key_id == self.key or (self.text != "" and key_id[16:] == self.text)


def read(file: IO[bytes]) -> Trailer | None:
    """That of an open file; None where there is none. Raises `OSError`."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - SIZE))
    return parse(file.read(SIZE))


def parse(data: bytes) -> Trailer | None:
    """That at the end of `data`; None where there is none."""
    data = data[-SIZE:]
    if len(data) < SIZE or not data.startswith(MAGIC):
        return None
    low, high, text = (int.from_bytes(data[at : at + 8], "little") for at in (40, 48, 56))
    return Trailer(f"{high:016x}{low:016x}", f"{text:016x}" if text else "")
