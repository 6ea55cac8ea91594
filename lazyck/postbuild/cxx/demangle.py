"""Demangles symbols, to show them as people write them."""

import contextlib
import re
from collections.abc import Mapping, Sequence

from lazyck import proc
from lazyck.errors import ToolchainError

_MANGLED = re.compile(r"(?<![\w.$])_Z\w+")


def readable_lines(texts: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
    """Return `texts` with all names in them demangled, by one `c++filt`, if that is installed."""
    plain = all_readable([name for text in texts for name in _MANGLED.findall(text)], env)
    return [_MANGLED.sub(lambda m: plain[m[0]], text) for text in texts]


def all_readable(
    symbols: Sequence[str], env: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> dict[str, str]:
    """Map each of `symbols` to its demangled name, by one call of `c++filt`."""
    mangled = list(dict.fromkeys(s for s in symbols if s.startswith("_Z") and "\n" not in s))
    lines: list[str] = []
    if mangled:
        with contextlib.suppress(ToolchainError):
            text = "\n".join([*mangled, ""])
            lines = proc.run(["c++filt", *options], env=env, stdin=text).stdout.split("\n")[:-1]
    shown = dict(zip(mangled, lines, strict=True)) if len(lines) == len(mangled) else {}
    return {s: shown.get(s, s) for s in symbols}
