"""The last 64 bytes of an entry, which identify it (docs/cache-format.md;
runtime/src/cache/entry.cpp)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO

SIZE = 64
MAGIC = b"LAZYCKEN"


@dataclass(frozen=True)
class Trailer:
    """`key` is the key of the entry, in 32 hexadecimal digits. `text` is the lower half of the key
    of the text that the entry was made of, in 16 digits, or an empty string."""

    key: str
    text: str

    def answers_to(self, key_id: str) -> bool:
        """Return whether the entry is for that key: its own key, or the key of its text."""
        return key_id == self.key or (self.text != "" and key_id[16:] == self.text)


def read(file: IO[bytes]) -> Trailer | None:
    """Return the trailer of an open file, or None if it has none. Raises `OSError`."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - SIZE))
    return parse(file.read(SIZE))


def parse(data: bytes) -> Trailer | None:
    """Return the trailer at the end of `data`, or None if there is none."""
    data = data[-SIZE:]
    if len(data) < SIZE or not data.startswith(MAGIC):
        return None
    low, high, text = (int.from_bytes(data[at : at + 8], "little") for at in (40, 48, 56))
    return Trailer(f"{high:016x}{low:016x}", f"{text:016x}" if text else "")
