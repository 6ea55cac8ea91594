"""Measure the memory of a process and its descendants, by /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_PROC = Path("/proc")


def tree_rss_kib(root: int) -> int:
    """Return the resident memory of all descendants of process `root`, in KiB; 0 if /proc does not
    say."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    try:
        numbers = [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    except OSError:
        return 0
    for number in numbers:
        try:
            # The name, in parentheses, may contain anything.
            words = (_PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
            parents[number], pages[number] = int(words[1]), int(words[21])
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
    below = [n for n in parents if _descends(n, root, parents)]
    return sum(pages[n] for n in below) * (os.sysconf("SC_PAGE_SIZE") // 1024)


def _descends(number: int, root: int, parents: Mapping[int, int]) -> bool:
    for _ in range(len(parents)):
        number = parents.get(number, 0)
        if number == root:
            return True
        if number <= 1:
            break
    return False
