"""Runs an object store's library in a process of its own, because its use of memory cannot be
bounded otherwise.

The process has little memory, and is killed when it is given up. It answers one request after the
other from `_lazyck.remote.apart_store`, and ends when that process has gone. Its standard input has
lines of JSON: first the tier as {"url": …, "label": …}, then requests {"do": <method of Store>,
"with": [<word>…]}, in which bytes are {"base64": …}. For each request it writes a line of JSON to
its standard output:

    {"found": <value>}
    {"parts": true}, then parts, each after its size (4 bytes, big-endian), then the size 0 and a
        line {"found": null}
    {"store": <message>}, {"remote": <message>, "hint": …} or {"fails": <kind>} for an error
"""

from __future__ import annotations

import base64
import json
import os
import queue
import resource
import sys
import threading
from typing import Any, BinaryIO

from _lazyck.errors import LazyckError
from _lazyck.remote.object_store import ObjectStore
from _lazyck.remote.store import StoreError
from _lazyck.remote.tiers import Tier

MOST_MEMORY = 384 << 20  # in bytes
_METHODS = ("read", "size", "write", "write_file", "create", "replace", "delete")


def main() -> None:
    """Answer requests until the other process has gone."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
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
