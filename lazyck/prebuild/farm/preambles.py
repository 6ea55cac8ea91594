"""Precompiled preambles on a worker: the first job of a group makes one, for itself and those that come after it; what
other threads compile meanwhile does without, as in a local build (prebuild/preambles.py).
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shutil
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from lazyck import proc
from lazyck.prebuild.entries import rt_words
from lazyck.prebuild.farm.orders import Order

_lock = threading.Lock()
_made: dict[tuple[str, str], Path | None] = {}  # (run, group) → its directory; None while it is being made


def preamble_words_for(order: Order, rt: Path, manifest_file: Path, cache: Path, env: Mapping[str, str]) -> list[str]:
    """Words for `lazyck-rt compile` by which the order's blob takes its group's preamble; none if there is none yet."""
    if not order.preamble:
        return []
    key = (order.run, order.preamble)
    with _lock:
        is_first = key not in _made
        directory = _made.setdefault(key, None)
    if is_first:
        directory = _directory(cache)
        words = [*rt_words(rt, "preamble", manifest_file, order.archs), "--preamble", str(directory)]
        proc.run([*words, "--", order.blob], env=env)  # where it fails the compiles do without
        with _lock:
            _made[key] = directory
    return ["--preamble", str(directory)] if directory else []


def _directory(cache: Path) -> Path:
    """A new one in the cache's place for such things; those of a killed process the runtime removes, which is why they
    are named after it."""
    staging = cache / ".staging"
    for path in (cache, staging):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    host = re.sub(r"[^A-Za-z0-9._+-]", "_", socket.gethostname())
    directory = staging / f"preambles-{os.getpid()}@{host}-{secrets.token_hex(3)}"
    directory.mkdir(mode=0o700)
    return directory


def forget_preambles(run: str = "") -> None:
    """Remove what was made for a run; "": for any."""
    with _lock:
        over = [key for key in _made if run in ("", key[0])]
        directories = [_made.pop(key) for key in over]
    for directory in directories:
        if directory:
            shutil.rmtree(directory, ignore_errors=True)


atexit.register(forget_preambles)
