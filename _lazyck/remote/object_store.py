"""Stores objects in the object stores that fsspec knows, except S3. Credentials are what those
stores' own tools take.

Their libraries collect answers in memory without a limit, and go on reading when nobody waits any
more, each in its own way. So this runs in a process of its own, which has little memory, and is
killed when it is given up. It answers requests of `_lazyck.remote.apart_store` one after the other,
and ends when that process has gone. Its standard input has lines of JSON: first the tier as
{"url": …, "label": …}, then requests {"do": <method of Store>, "with": [<word>…]}, in which bytes
are {"base64": …}. For each request it writes a line of JSON to its standard output:

    {"found": <value>}
    {"parts": true}, then parts, each after its size (4 bytes, big-endian), then the size 0 and a
        line {"found": null}
    {"store": <message>}, {"remote": <message>, "hint": …} or {"fails": <kind>} for an error
"""

import base64
import contextlib
import json
import os
import queue
import resource
import sys
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from _lazyck.errors import LazyckError, RemoteError
from _lazyck.remote.extras import need
from _lazyck.remote.store import CHUNK, Store, StoreError
from _lazyck.remote.tiers import Tier

_PART = 8 * CHUNK
_MOST_MEMORY = 384 << 20  # in bytes
_METHODS = ("read", "size", "write", "write_file", "create", "replace", "delete")


class ObjectStore(Store):
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

    def write_file(self, name: str, path: str) -> None:
        self._files.put_file(path, f"{self._root}/{name}")

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        try:
            self._files.pipe_file(f"{self._root}/{name}", data, mode="create")
        except FileExistsError:
            return False
        return None  # some stores ignore the condition

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


def main() -> None:
    """Answer requests until the other process has gone."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library's output must not be taken for an answer
    lines: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_hear, args=(lines,), daemon=True).start()
    tier = Tier(**json.loads(lines.get()))
    store: ObjectStore | None = None
    while True:
        request = json.loads(lines.get())
        try:
            store = store or ObjectStore(tier)
            answer: dict[str, object] = {"found": _answer(store, request["do"], request["with"], out)}
        except StoreError as e:
            answer = {"store": e.message}
        except LazyckError as e:
            answer = {"remote": e.message, "hint": e.hint}
        except MemoryError:
            answer = {"store": "sends more than was asked for"}
        except Exception as e:  # their texts may hold passwords
            answer = {"fails": type(e).__name__}
        _say(out, answer)


def _hear(lines: queue.Queue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)  # even during a request, because nobody waits for its answer


def _answer(store: ObjectStore, method: str, words: list[Any], out: BinaryIO) -> object:
    assert method in _METHODS
    arguments = [base64.b64decode(w["base64"]) if isinstance(w, dict) else w for w in words]
    found = getattr(store, method)(*arguments)
    if method != "read" or found is None:
        return found
    _say(out, {"parts": True})
    try:
        for part in found:
            out.write(len(part).to_bytes(4, "big") + part)
    finally:
        out.write(bytes(4))
    return None


def _say(out: BinaryIO, answer: dict[str, object]) -> None:
    out.write(json.dumps(answer).encode() + b"\n")
    out.flush()
