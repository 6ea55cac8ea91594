"""The interface of backends: objects by name. Any exception counts as a failure of the tier;
`StoreError` tells the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from _lazyck.errors import RemoteError

CHUNK = 1 << 20
UNKNOWN_SIZE = -1


class StoreError(RemoteError):
    """A tier did not do what it was asked. The message says why, and has no credentials."""


class Store(Protocol):
    """Objects by name, `ac/<hash>` and `cas/<hash>`. What is written is there whole or not at
    all."""

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        """Yield the object's first `most` bytes in parts, or return None if there is none. No more
        than that is read."""

    def size(self, name: str) -> int | None:
        """Return the object's size, or UNKNOWN_SIZE, or None if there is no object."""

    def write(self, name: str, data: bytes) -> None:
        """Write the object, whether it exists or not."""

    def write_file(self, name: str, path: str) -> None:
        """Write the object from a file, whether it exists or not."""

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        """Create an object unless it exists, for so many seconds if the store can forget. Return
        whether it was created, or None if it was written and the store cannot tell whether another
        process did so, too."""

    def replace(self, name: str, old: bytes, new: bytes, seconds: float) -> bool | None:
        """Replace the object if it is `old`. The result is like that of `create`."""
        self.write(name, new)
        return None

    def delete(self, name: str) -> bool:
        """Delete the object. Return False if the store cannot."""


def read_token(path: str, label: str) -> str:
    """Return the password in the token file of a tier or service, or an empty string if it names
    none. Raises `UsageError`."""
    if not path:
        return ""
    from _lazyck.remote.sign import read_private

    words = read_private(Path(path), f"the token of {label}").decode("ascii", "replace").split()
    return words[0] if words else ""
