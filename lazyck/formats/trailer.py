"""The last 64 bytes of an entry, which identify it (docs/cache-format.md, cache/entry.cpp)."""

import os
import struct
from dataclasses import dataclass
from typing import IO

from lazyck import abi

_STRUCT = struct.Struct(f"<{len(abi.ENTRY_MAGIC)}s2I{len(abi.ENTRY_TRAILER)}Q")
SIZE = _STRUCT.size


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
    data = data[-SIZE:]
    if len(data) < SIZE or not data.startswith(abi.ENTRY_MAGIC):
        return None
    _magic, _version, _reserved, *numbers = _STRUCT.unpack(data)
    row = dict(zip(abi.ENTRY_TRAILER, numbers, strict=True))
    return Trailer(f"{row['key_high']:016x}{row['key_low']:016x}", f"{row['text']:016x}" if row["text"] else "")
