"""Symbols as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lazyck import proc
from lazyck.errors import ToolchainError

_MANGLED = re.compile(r"(?<![\w.$])_Z\w+")


def readable(text: str, env: Mapping[str, str] | None = None, options: Sequence[str] = ()) -> str:
    """`text` with each mangled name in it demangled, where binutils' `c++filt` is there to do it."""
    names = list(dict.fromkeys(_MANGLED.findall(text)))
    if not names:
        return text
    try:
        shown = proc.run(["c++filt", *options, *names], env=env).stdout.splitlines()
    except ToolchainError:
        return text
    plain = dict(zip(names, shown, strict=False))
    return _MANGLED.sub(lambda m: plain.get(m[0]) or m[0], text)


def name(symbol: str, env: Mapping[str, str]) -> str:
    """The name of a function, with its template arguments: `ns::K<1>`."""
    return readable(symbol, env, ["--no-params"])


def all_readable(symbols: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Each of `symbols` demangled, by one call of `c++filt`."""
    distinct = list(dict.fromkeys(symbols))
    try:
        lines = proc.run(["c++filt"], env=env, stdin="\n".join([*distinct, ""])).stdout.splitlines() if distinct else []
    except ToolchainError:
        lines = []
    return dict(zip(distinct, lines, strict=True)) if len(lines) == len(distinct) else {s: s for s in distinct}
