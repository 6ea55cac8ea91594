"""The names of an entry and its objects in a remote, which do not depend on the host.

    ac/<SHA-256>    the record of an entry, or its lease; the hash is of a line with its kind, the
                    entry's key and the entry's name
    cas/<SHA-256>   contents, named by their own hash

Servers of Bazel's HTTP cache protocol serve exactly these names.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi
from lazyck.errors import FormatError
from lazyck.files import open_regular
from lazyck.formats import trailer
from lazyck.formats.layout import EntryPath

_KEY = re.compile(r"[0-9a-f]{32}", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PART = re.compile(r"[A-Za-z0-9_+~][A-Za-z0-9._+~-]{0,250}", re.ASCII)
LONGEST_NAME = 1000


@dataclass(frozen=True)
class EntryName:
    """An entry, whichever cache has it: its key (EntryKey::id() of the runtime), and its path below
    the cache's `v1/`.

    Raises `FormatError` for what cannot be an entry.
    """

    key_id: str
    name: str

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key_id):
            raise FormatError("an entry's key is 32 hexadecimal digits")
        if not _is_place(self.name):
            raise FormatError("an entry's name is <library>/<archs>-<toolchain>/<blob>-<16 digits>.so")

    @property
    def record(self) -> str:
        return self._object("entry")

    @property
    def lease(self) -> str:
        """Return the object that tells who compiles the entry at this moment."""
        return self._object("lease")

    @property
    def entry_path(self) -> EntryPath:
        return EntryPath(*self.name.split("/"))

    def _object(self, what: str) -> str:
        text = f"lazyck {what} 1\n{self.key_id}\n{self.name}"
        return "ac/" + hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def of_file(cls, cache: Path, path: Path) -> "EntryName":
        """Return the name of an entry of a cache. Its key is read from the file's trailer. Raises
        `FormatError`, `OSError`."""
        try:
            name = path.relative_to(cache / abi.CACHE_VERSION)
        except ValueError as e:
            raise FormatError(f"{path} is not an entry of the cache {cache}") from e
        return cls(_trailer_of(path).key, str(name))


def _is_place(name: str) -> bool:
    """Return whether a name that may come from anywhere is that of an entry below `v1/`."""
    parts = name.split("/")
    if len(name) > LONGEST_NAME or len(parts) != 3:
        return False
    place = EntryPath(*parts)
    return place.is_entry and all(_PART.fullmatch(p) for p in (place.library, place.leaf, place.blob))


def answers_to(path: Path, key_id: str) -> bool:
    """Return whether a file is an entry for that key: its own key or that of its text. Raises
    `OSError`."""
    try:
        return _trailer_of(path).answers_to(key_id)
    except FormatError:
        return False


def _trailer_of(path: Path) -> trailer.Trailer:
    with open_regular(path) as f:
        found = trailer.read(f)
    if found is None:
        raise FormatError(f"{path}: cut short, or not written by lazyck")
    return found


def contents_name(sha256: str) -> str:
    """Return the object of contents. Raises `FormatError` for what is no SHA-256."""
    if not DIGEST.fullmatch(sha256):
        raise FormatError("a SHA-256 is 64 hexadecimal digits")
    return "cas/" + sha256
