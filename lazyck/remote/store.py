"""What a backend does: objects by name. Whatever it raises counts as a failure of the tier; `StoreError` says which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from lazyck.errors import RemoteError
from lazyck.remote.tiers import DIRECTORY, HTTP, REDIS, S3, Tier, Times

CHUNK = 1 << 20
UNKNOWN_SIZE = -1


class StoreError(RemoteError):
    """A tier did not do what it was asked. The message says why, and names no credentials."""


class Store(Protocol):
    """Objects by name, `ac/<hash>` and `cas/<hash>`. What is written is there whole or not at all."""

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        """The object's first `most` bytes, in parts; None if there is none. No more than that is read."""

    def size(self, name: str) -> int | None:
        """The object's size, or UNKNOWN_SIZE; None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Make it so."""

    def write_file(self, name: str, path: str, size: int) -> None:
        """The same out of a file."""

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        """Make an object, for so long if the store can forget, unless there is one: whether it was made. None: it was
        written, and the store cannot tell whether another did so too."""

    def replace(self, name: str, old: bytes, new: bytes, seconds: float) -> bool | None:
        """The same if the object is `old`."""

    def delete(self, name: str) -> bool:
        """Remove the object; False: the store cannot."""


def open_store(tier: Tier, times: Times) -> Store:
    """The backend of a tier; nothing is connected yet. Raises `RemoteError` if its library is not here."""
    # Each when it is used: the helper starts for every local miss.
    if tier.scheme in HTTP:
        from lazyck.remote.http_store import HttpStore

        return HttpStore(tier, times)
    if tier.scheme in REDIS:
        from lazyck.remote.redis_store import RedisStore

        return RedisStore(tier, times)
    if tier.scheme == DIRECTORY:
        from lazyck.remote.directory_store import DirectoryStore

        return DirectoryStore(tier)
    if tier.scheme == S3:
        from lazyck.remote.s3_store import S3Store

        return S3Store(tier, times)
    from lazyck.remote.apart_store import ApartStore

    return ApartStore(tier, times)


def read_token(tier: Tier) -> str:
    """The password in a tier's token file; "" if it names none. Raises `UsageError`."""
    if not tier.token_file:
        return ""
    from pathlib import Path

    from lazyck.remote.sign import read_private

    lines = read_private(Path(tier.token_file), f"the token of {tier.label}").decode("ascii", "replace").split()
    return lines[0] if lines else ""
