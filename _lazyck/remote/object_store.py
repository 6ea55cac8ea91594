"""Stores objects in the object stores that fsspec knows, except S3. Credentials are what those
stores' own tools take.

Their libraries collect answers in memory without a limit, and go on reading when nobody waits any
more, each in its own way. So this runs in a process of its own (`_lazyck.remote.apart`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from _lazyck.errors import RemoteError
from _lazyck.remote.extras import need
from _lazyck.remote.store import CHUNK, StoreError
from _lazyck.remote.tiers import Tier

_PART = 8 * CHUNK


class ObjectStore:
    """A bucket, or a place in one."""

    def __init__(self, tier: Tier) -> None:
        fsspec = need("fsspec", "remote-s3", tier.label)
        try:
            self._files: Any = fsspec.filesystem(tier.scheme, skip_instance_cache=True, use_listings_cache=False)
        except (ImportError, ValueError) as e:
            raise RemoteError(f"{tier.label}: {e}", "give http, redis, s3, a directory, or what fsspec knows") from e
        parts = urlsplit(tier.url)
        self._root = f"{parts.netloc}{parts.path}".rstrip("/")

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        path = f"{self._root}/{name}"
        try:
            first = self._files.cat_file(path, start=0, end=min(most, _PART))
        except FileNotFoundError:
            return None
        except PermissionError as e:
            raise StoreError("denies access") from e
        return self._parts(path, first, most)

    def size(self, name: str) -> int | None:
        try:
            found = self._files.info(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return int(found["size"]) if found.get("type") == "file" else None

    def write(self, name: str, data: bytes) -> None:
        self._files.pipe_file(f"{self._root}/{name}", data)

    def write_file(self, name: str, path: str, size: int) -> None:
        self._files.put_file(path, f"{self._root}/{name}")

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        try:
            self._files.pipe_file(f"{self._root}/{name}", data, mode="create")
        except FileExistsError:
            return False
        return None  # some stores ignore the condition

    def replace(self, name: str, old: bytes, new: bytes, seconds: float) -> bool | None:
        self.write(name, new)
        return None

    def delete(self, name: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")
        return True

    def _parts(self, path: str, first: bytes, most: int) -> Iterator[bytes]:
        part, at, asked = first, 0, min(most, _PART)
        while part:
            yield part[:asked]
            at += len(part)
            if len(part) < asked or at >= most:
                break
            asked = min(most - at, _PART)
            part = self._files.cat_file(path, start=at, end=at + asked)
