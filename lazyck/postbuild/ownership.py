"""Which symbols become stubs and which blobs stay eager: pure decisions over symbol names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NOTHING = "defines no function that a stub could stand for"
INLINE = "nothing needs it, and all that it defines may be inline"
RIVALLED = "another file of the link defines functions of it too"


@dataclass(frozen=True)
class Offer:
    """What a blob would define. `weak`: those of `symbols` that its compiler leaves out where nothing in the blob uses
    them (inline functions, implicit instantiations): they are there only for somebody who needs them."""

    source: str
    symbols: tuple[str, ...]
    weak: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Ownership:
    """`lazy` maps a blob's source to the symbols that get stubs. `spare` lists those lazy blobs that nothing in the
    link needs; `unneeded` those that must be eager, with the reason;
    `doubles` the symbols that a second blob defines as well (the first in link order has them)."""

    lazy: Mapping[str, tuple[str, ...]]
    spare: tuple[str, ...]
    unneeded: Mapping[str, str]
    doubles: tuple[tuple[str, str], ...]


def assign(offers: Sequence[Offer], undefined: Iterable[str], defined: Iterable[str]) -> Ownership:
    """Give each symbol to the first blob that defines it, in link order.

    `undefined` and `defined` come from the real objects: what one of them defines itself, weakly too, needs no stub.
    All else that a lazy blob defines gets one, needed or not: other blobs may call it, and the library exports it as
    it does when it is built ahead of time. What a blob defines weakly gets one only where it is needed.

    A blob of which nothing is needed is lazy too, so that it costs no more than the others; but where a real object
    defines one of its functions as well, which of the two wins is the linker's business, and the blob must be there
    for real.
    """
    taken = set(defined)
    wanted = set(undefined) - taken
    needed = [o for o in offers if not wanted.isdisjoint(o.symbols)]
    chosen = {o.source for o in needed}
    owner: dict[str, str] = {}
    lazy: dict[str, list[str]] = {}
    doubles = []

    def own(offer: Offer, symbols: Iterable[str]) -> None:
        for symbol in symbols:
            if symbol in taken:
                continue
            if owner.setdefault(symbol, offer.source) == offer.source:
                lazy.setdefault(offer.source, []).append(symbol)
            else:
                doubles.append((symbol, offer.source))

    # what is needed first: a blob that merely defines a symbol too must not take it from one that stays
    for o in needed:
        own(o, (s for s in dict.fromkeys(o.symbols) if s not in o.weak or s in wanted))
    spare: list[str] = []
    unneeded: dict[str, str] = {}
    for o in offers:
        if o.source in chosen:
            if o.source not in lazy:  # an earlier blob has all that is needed of it
                unneeded[o.source] = RIVALLED
            continue
        strong = [s for s in dict.fromkeys(o.symbols) if s not in o.weak]
        if strong and not any(s in taken or s in owner for s in strong):
            own(o, strong)
            spare.append(o.source)
        else:
            unneeded[o.source] = RIVALLED if strong else INLINE if o.symbols else NOTHING
    return Ownership({s: tuple(v) for s, v in lazy.items()}, tuple(spare), unneeded, tuple(doubles))
