"""Which symbols become stubs and which blobs stay eager: pure decisions over symbol names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NOT_NEEDED = "nothing left undefined needs it"


@dataclass(frozen=True)
class Ownership:
    """`lazy` maps a blob's source to the symbols that get stubs; `unneeded` lists the probed blobs of which no
    symbol is needed; `doubles` the symbols that a second blob defines too (the first in link order has them)."""

    lazy: Mapping[str, tuple[str, ...]]
    unneeded: tuple[str, ...]
    doubles: tuple[tuple[str, str], ...]


def assign(
    probed: Sequence[tuple[str, tuple[str, ...]]], undefined: Iterable[str], defined: Iterable[str]
) -> Ownership:
    """Give each symbol that real objects leave undefined to the first blob that defines it.

    `probed` holds (source, symbols) in link order; `undefined` and `defined` come from the real objects: what one
    of them defines itself, weakly too, needs no stub.
    """
    wanted = set(undefined) - set(defined)
    owner: dict[str, str] = {}
    lazy: dict[str, list[str]] = {}
    doubles = []
    for source, symbols in probed:
        for symbol in symbols:
            if symbol not in wanted:
                continue
            if symbol in owner:
                if owner[symbol] != source:
                    doubles.append((symbol, source))
                continue
            owner[symbol] = source
            lazy.setdefault(source, []).append(symbol)
    unneeded = tuple(source for source, _ in probed if source not in lazy)
    return Ownership({s: tuple(v) for s, v in lazy.items()}, unneeded, tuple(doubles))
