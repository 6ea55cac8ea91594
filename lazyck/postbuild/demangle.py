"""Symbols as people write them."""

from __future__ import annotations

from collections.abc import Mapping

from lazyck import proc
from lazyck.errors import ToolchainError


def readable(symbol: str, env: Mapping[str, str]) -> str:
    """`symbol` demangled, where binutils' `c++filt` is there to do it."""
    try:
        shown = proc.run(["c++filt", symbol], env=env)
    except ToolchainError:
        return symbol
    return shown.stdout.strip() or symbol
