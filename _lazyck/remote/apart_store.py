"""Runs `_lazyck.remote.object_store` in a process of its own. What its library reads cannot be
bounded here, but the process can, and it ends with the exchange."""

import base64
import json
import sys
import threading
from collections.abc import Iterator
from functools import partialmethod
from typing import Any

from _lazyck.errors import RemoteError
from _lazyck.proc import Conversation
from _lazyck.remote.exchange import current
from _lazyck.remote.extras import need
from _lazyck.remote.store import StoreError
from _lazyck.remote.tiers import Tier, Times

_LONGEST_LINE = 64 << 10
_LARGEST_PART = 16 << 20


class ApartStore:
    """A bucket, or a place in one."""

    def __init__(self, tier: Tier, times: Times) -> None:
        need("fsspec", "remote-s3", tier.label)
        self._tier = tier
        self._lock = threading.Lock()
        self._idle: list[_Child] = []

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        child = self._child()
        answer = child.ask("read", name, most)
        return child.parts(most) if answer.get("parts") else None

    def _found(self, method: str, *words: Any) -> Any:
        return self._child().ask(method, *words).get("found")

    size = partialmethod(_found, "size")
    write = partialmethod(_found, "write")
    write_file = partialmethod(_found, "write_file")
    create = partialmethod(_found, "create")
    replace = partialmethod(_found, "replace")
    delete = partialmethod(_found, "delete")

    def _child(self) -> "_Child":
        """Return an idle process, for this exchange."""
        current().check()
        with self._lock:
            child = self._idle.pop() if self._idle else None
        child = child or _Child(self._tier, self._lock, self._idle)
        current().hold(child)
        return child


class _Child:
    """A process with the library. When an exchange releases it, it becomes idle again, or ends."""

    def __init__(self, tier: Tier, lock: threading.Lock, idle: "list[_Child]") -> None:
        self._lock = lock
        self._idle = idle
        self._is_busy = False
        # With -m, Python would look into the working directory first.
        path = [p for p in sys.path if p]
        program = f"import sys; sys.path[:] = {path!r}; from _lazyck.remote.object_store import main; main()"
        self._process = Conversation([sys.executable, "-c", program])
        self._in, self._out = self._process.input, self._process.output
        self._say({"url": tier.url, "label": tier.label})

    def ask(self, method: str, *words: Any) -> dict[str, Any]:
        """Return the line that answers. Raises `RemoteError`."""
        self._is_busy = True
        packed = [{"base64": base64.b64encode(w).decode()} if isinstance(w, bytes) else w for w in words]
        self._say({"do": method, "with": packed})
        return self._hear()

    def parts(self, most: int) -> Iterator[bytes]:
        """Yield the parts that follow a line that announces them."""
        while size := int.from_bytes(self._read(4), "big"):
            most -= size
            if size > _LARGEST_PART or most < 0:
                raise StoreError("sends more than was asked for")
            yield self._read(size)
        self._hear()

    def end(self) -> None:
        self._process.kill()

    def release(self) -> None:
        """Make the process idle if it has answered completely, else end it."""
        if not self._is_busy and self._process.poll() is None:
            with self._lock:
                self._idle.append(self)
            return
        self._process.close()

    def _say(self, line: dict[str, Any]) -> None:
        self._in.write(json.dumps(line).encode() + b"\n")
        self._in.flush()

    def _hear(self) -> dict[str, Any]:
        line = self._out.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise StoreError("its process ended without an answer")
        answer: dict[str, Any] = json.loads(line)
        self._is_busy = "parts" in answer
        if "store" in answer:
            raise StoreError(answer["store"])
        if "remote" in answer:
            raise RemoteError(answer["remote"], answer["hint"])
        if "fails" in answer:
            raise StoreError(f"fails ({answer['fails']})")
        return answer

    def _read(self, size: int) -> bytes:
        data = self._out.read(size)
        if len(data) < size:
            raise StoreError("its process ended within an answer")
        return data
