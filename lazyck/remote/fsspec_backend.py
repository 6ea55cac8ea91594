"""Stores objects in the object stores that fsspec knows, except S3. Credentials are what those
stores' own tools take.

Their libraries collect answers in memory without a limit, and cannot be cancelled. So each runs in
a child process, which has little memory, is killed when its exchange is given up, and ends when
this process has gone. The processes send each other
values as `marshal` writes them, which cannot run code where they are read: first the tier's URL and
label, then requests (<method of Backend>, <word>…), which are answered one after the other:

    ("found", <value>)
    ("parts",), then the parts, then b"" and ("found", None)
    ("backend", <message>), ("remote", <message>, <hint>) or ("fails", <kind>) for an error
"""

import contextlib
import marshal
import os
import queue
import resource
import sys
import threading
from collections.abc import Iterator
from functools import partialmethod
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from lazyck.errors import LazyckError, RemoteError
from lazyck.proc import Conversation
from lazyck.remote.backend import CHUNK, Backend, BackendError
from lazyck.remote.exchange import current
from lazyck.remote.extras import need
from lazyck.remote.tiers import Tier, Times

_PART = 8 * CHUNK
_MOST_MEMORY = 384 << 20  # in bytes


class FsspecBackend:
    def __init__(self, tier: Tier, times: Times) -> None:
        need("fsspec", "remote-s3", tier.label)
        self._tier = tier
        self._lock = threading.Lock()
        self._idle: list[_Child] = []

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        child = self._child()
        return child.parts(most) if child.ask("read", name, most) == ("parts",) else None

    def _found(self, method: str, *words: Any) -> Any:
        return self._child().ask(method, *words)[1]

    size = partialmethod(_found, "size")
    write = partialmethod(_found, "write")
    create = partialmethod(_found, "create")
    replace = partialmethod(_found, "replace")
    delete = partialmethod(_found, "delete")

    def _child(self) -> "_Child":
        current().check()
        with self._lock:
            child = self._idle.pop() if self._idle else None
        child = child or _Child(self._tier, self._lock, self._idle)
        current().hold(child)
        return child


class _Child(Conversation):
    """A process with the library. When an exchange releases it, it becomes idle again, or ends."""

    end = Conversation.kill

    def __init__(self, tier: Tier, lock: threading.Lock, idle: "list[_Child]") -> None:
        # With -m, Python would look into the working directory first.
        path = [p for p in sys.path if p]
        program = f"import sys; sys.path[:] = {path!r}; from lazyck.remote.fsspec_backend import main; main()"
        super().__init__([sys.executable, "-c", program])
        self._lock = lock
        self._idle = idle
        self._is_busy = False
        _send(self.input, (tier.url, tier.label))

    def ask(self, method: str, *words: Any) -> tuple[Any, ...]:
        """Return the answer. Raises `RemoteError`."""
        self._is_busy = True
        _send(self.input, (method, *words))
        return self._receive()

    def parts(self, most: int) -> Iterator[bytes]:
        """Yield the parts that follow an answer that announces them."""
        while part := self._load("within"):
            most -= len(part)
            if most < 0:
                raise BackendError("sends more than was asked for")
            yield part
        self._receive()

    def release(self) -> None:
        """Make the process idle if it has answered completely, else end it."""
        if not self._is_busy and self.poll() is None:
            with self._lock:
                self._idle.append(self)
            return
        self.close()

    def _receive(self) -> tuple[Any, ...]:
        answer: tuple[Any, ...] = self._load("without")
        self._is_busy = answer == ("parts",)
        match answer:
            case ("backend", message):
                raise BackendError(message)
            case ("remote", message, hint):
                raise RemoteError(message, hint)
            case ("fails", kind):
                raise BackendError(f"fails ({kind})")
        return answer

    def _load(self, where: str) -> Any:
        try:
            return marshal.load(self.output)
        except (EOFError, TypeError, ValueError) as e:
            raise BackendError(f"its process ended {where} an answer") from e


def _send(to: Any, value: tuple[Any, ...]) -> None:
    marshal.dump(value, to)
    to.flush()


class InProcessBackend(Backend):
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
            raise BackendError("denies access") from e
        return self._parts(path, first, most)

    def size(self, name: str) -> int | None:
        try:
            found = self._files.info(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return int(found["size"]) if found.get("type") == "file" else None

    def write(self, name: str, data: bytes | str) -> None:
        path = f"{self._root}/{name}"
        if isinstance(data, bytes):
            self._files.pipe_file(path, data)
        else:
            self._files.put_file(data, path)

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
    requests: queue.Queue[tuple[Any, ...]] = queue.Queue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    tier = Tier(*requests.get())
    backend: InProcessBackend | None = None
    while True:
        method, *words = requests.get()
        answer: tuple[Any, ...]
        try:
            backend = backend or InProcessBackend(tier)
            found = getattr(backend, method)(*words)
            if method == "read" and found is not None:
                _send_parts(found, out)
                found = None
            answer = ("found", found)
        except BackendError as e:
            answer = ("backend", e.message)
        except LazyckError as e:
            answer = ("remote", e.message, e.hint)
        except MemoryError:
            answer = ("backend", "sends more than was asked for")
        except Exception as e:  # their texts may hold passwords
            answer = ("fails", type(e).__name__)
        _send(out, answer)


def _receive(requests: queue.Queue[tuple[Any, ...]]) -> None:
    with contextlib.suppress(EOFError):
        while True:
            requests.put(marshal.load(sys.stdin.buffer))
    os._exit(0)  # even during a request, whose caller has gone


def _send_parts(parts: Iterator[bytes], out: BinaryIO) -> None:
    _send(out, ("parts",))
    try:
        for part in parts:
            marshal.dump(part, out)
    finally:
        marshal.dump(b"", out)
