"""Which symbols become stubs and which blobs stay eager: pure decisions over symbol names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NOT_NEEDED = "nothing left undefined needs it"


@dataclass(frozen=True)
class Ownership:
    """`lazy` maps a blob's source to the symbols that get stubs. `spare` lists those lazy blobs that nothing in the
    link needs; `unneeded` those that must be eager, because real objects define some of their functions too;
    `doubles` the symbols that a second blob defines as well (the first in link order has them)."""

    lazy: Mapping[str, tuple[str, ...]]
    spare: tuple[str, ...]
    unneeded: tuple[str, ...]
    doubles: tuple[tuple[str, str], ...]


def assign(
    probed: Sequence[tuple[str, tuple[str, ...]]], undefined: Iterable[str], defined: Iterable[str]
) -> Ownership:
    """Give each symbol that real objects leave undefined to the first blob that defines it.

    `probed` holds (source, symbols) in link order; `undefined` and `defined` come from the real objects: what one
    of them defines itself, weakly too, needs no stub.

    A blob of which nothing is needed still belongs to the library: what it defines is exported, and somebody may
    look it up. All its functions get stubs, so that it costs no more than the others; but where a real object
    defines one of them too, which of the two wins is the linker's business, and the blob must be there for real.
    """
    taken = set(defined)
    wanted = set(undefined) - taken
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
    spare, unneeded = [], []
    for source, symbols in probed:
        if source in lazy:
            continue
        if symbols and not any(s in taken or s in owner for s in symbols):
            owner.update((s, source) for s in symbols)
            lazy[source] = list(symbols)
            spare.append(source)
        else:
            unneeded.append(source)
    return Ownership({s: tuple(v) for s, v in lazy.items()}, tuple(spare), tuple(unneeded), tuple(doubles))
