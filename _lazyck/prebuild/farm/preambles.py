"""Precompile preambles on a worker. The first job of a group makes one for itself and those that
come after it. What other threads compile meanwhile does not use it, as in a local build
(prebuild/preambles.py)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from _lazyck import proc
from _lazyck.prebuild.entries import rt_words
from _lazyck.prebuild.farm.orders import Order

_lock = threading.Lock()
_begun: set[tuple[str, str]] = set()  # (run, group)


def prepare_preamble(order: Order, rt: Path, manifest_file: Path, env: Mapping[str, str]) -> None:
    """Make the preamble of the order's group in the worker's cache, if this is the group's first
    order here."""
    if not order.preamble:
        return
    key = (order.run, order.preamble)
    with _lock:
        is_first = key not in _begun
        _begun.add(key)
    if is_first:
        words = rt_words(rt, "preamble", manifest_file, order.archs)
        proc.run([*words, "--", order.blob], env=env)  # if it fails, the compiles do without it


def forget_preambles(run: str) -> None:
    """Forget which groups of a run had their first order. The cache keeps what was made."""
    with _lock:
        _begun.difference_update([key for key in _begun if key[0] == run])
