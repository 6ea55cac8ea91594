"""Precompiled preambles on a worker: the first job of a group makes one, for itself and those that come after it; what
other threads compile meanwhile does without, as in a local build (prebuild/preambles.py).
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from pathlib import Path

from lazyck import proc
from lazyck.prebuild.entries import rt_words
from lazyck.prebuild.farm.orders import Order
from lazyck.staging import Staging

_lock = threading.Lock()
_made: dict[tuple[str, str], Staging | None] = {}  # (run, group) → its directory; None while it is being made


def preamble_words_for(order: Order, rt: Path, manifest_file: Path, cache: Path, env: Mapping[str, str]) -> list[str]:
    """Words for `lazyck-rt compile` by which the order's blob takes its group's preamble; none if there is none yet."""
    if not order.preamble:
        return []
    key = (order.run, order.preamble)
    with _lock:
        is_first = key not in _made
        directory = _made.setdefault(key, None)
    if is_first:
        directory = Staging(cache, "preambles")
        words = [*rt_words(rt, "preamble", manifest_file, order.archs), "--preamble", str(directory.path)]
        proc.run([*words, "--", order.blob], env=env)  # where it fails the compiles do without
        with _lock:
            _made[key] = directory
    return ["--preamble", str(directory.path)] if directory else []


def forget_preambles(run: str = "") -> None:
    """Remove what was made for a run; "": for any."""
    with _lock:
        over = [key for key in _made if run in ("", key[0])]
        directories = [_made.pop(key) for key in over]
    for directory in directories:
        if directory:
            directory.remove()


atexit.register(forget_preambles)
