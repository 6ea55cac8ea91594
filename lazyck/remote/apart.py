"""The process in which a library runs that cannot be bounded: it has little memory, and is killed when it is given up.

It answers one request after the other, for `lazyck.remote.apart_store`, and ends when that has gone. Its standard input
has lines of JSON: first {"url": …, "label": …}, the tier, then requests {"do": <method of Store>, "with": [<word>…]},
bytes as {"base64": …}. To its standard output it says a line of JSON for each: {"found": <value>}, {"parts": true},
after which parts come, each behind its size (4 bytes, big-endian), a last one of size 0 and a line {"found": null}; or
what went wrong: {"store": <message>}, {"remote": <message>, "hint": …}, {"fails": <kind>}.
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

from lazyck.errors import LazyckError
from lazyck.remote.object_store import ObjectStore
from lazyck.remote.store import StoreError
from lazyck.remote.tiers import Tier

MOST_MEMORY = 384 << 20  # bytes
_METHODS = ("read", "size", "write", "write_file", "create", "replace", "delete")


def main() -> None:
    """Answer until nobody asks."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
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
        except Exception as e:  # texts of others may hold passwords
            answer = {"fails": type(e).__name__}
        _say(out, answer)


def _hear(lines: queue.Queue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)  # whatever is under way: nobody waits for it


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
