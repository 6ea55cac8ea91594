"""Which symbols become stubs and which blobs stay eager: pure decisions over symbol names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lazyck.postbuild.reasons import Kind, Reason

B = TypeVar("B")  # what identifies a blob: its compile command


@dataclass(frozen=True)
class Offer(Generic[B]):
    """What a blob would define. `weak`: those of `symbols` that its compiler leaves out where nothing in the blob uses
    them (inline functions, implicit instantiations): they are there only for somebody who needs them. `merged`: those
    that it always defines, but that give way to another file's definition (explicit instantiations, weak functions).
    """

    blob: B
    symbols: tuple[str, ...]
    weak: frozenset[str] = frozenset()
    merged: frozenset[str] = frozenset()

    @property
    def firm(self) -> frozenset[str]:
        """Those of `symbols` that give way to nothing."""
        return frozenset(self.symbols) - self.weak - self.merged


@dataclass(frozen=True)
class Ownership(Generic[B]):
    """`lazy` maps a blob to the symbols that get stubs. `spare` lists those lazy blobs that nothing in the
    link needs; `unneeded` those that must be eager, with the reason;
    `doubles` the symbols that a second blob defines as well (the first in link order has them)."""

    lazy: Mapping[B, tuple[str, ...]]
    spare: tuple[B, ...]
    unneeded: Mapping[B, Reason]
    doubles: tuple[tuple[str, B], ...]


def assign(
    offers: Sequence[Offer[B]], undefined: Iterable[str], defined: Iterable[str], strong: Iterable[str] | None = None
) -> Ownership[B]:
    """Give each symbol to the first blob that defines it, in link order.

    `undefined`, `defined` and `strong` (those of `defined` that are not weak; default: all) come from the real
    objects: what one of them defines needs no stub, unless it does so weakly and a blob does not, as a linker has it.
    All else that a lazy blob defines gets one, needed or not: other blobs may call it, and the library exports it as
    it does when it is built ahead of time. What a blob defines weakly gets one only where it is needed.

    A blob of which nothing is needed is lazy too, so that it costs no more than the others; but where a real object
    defines one of its functions as well, which of the two wins is the linker's business, and the blob must be there
    for real.
    """
    firm = frozenset().union(*(o.firm for o in offers))
    taken = set(defined) if strong is None else set(strong) | (set(defined) - firm)
    wanted = set(undefined) - taken
    needed = [o for o in offers if not wanted.isdisjoint(o.symbols)]
    chosen = {o.blob for o in needed}
    owner: dict[str, B] = {}
    lazy: dict[B, list[str]] = {}
    doubles: list[tuple[str, B]] = []

    def own(offer: Offer[B], symbols: Iterable[str]) -> None:
        for symbol in symbols:
            if symbol in taken or (symbol in offer.merged and (symbol in firm or symbol in owner)):
                continue
            if owner.setdefault(symbol, offer.blob) == offer.blob:
                lazy.setdefault(offer.blob, []).append(symbol)
            else:
                doubles.append((symbol, offer.blob))

    def rivalled(offer: Offer[B]) -> Reason:
        return Reason(Kind.RIVALLED, next((s for s in offer.symbols if s in taken or s in owner), ""))

    # what is needed first: a blob that merely defines a symbol too must not take it from one that stays
    for o in needed:
        own(o, (s for s in dict.fromkeys(o.symbols) if s not in o.weak or s in wanted))
    spare: list[B] = []
    unneeded: dict[B, Reason] = {}
    for o in offers:
        if o.blob in chosen:
            if o.blob not in lazy:  # an earlier blob has all that is needed of it
                unneeded[o.blob] = rivalled(o)
            continue
        always = [s for s in dict.fromkeys(o.symbols) if s not in o.weak]
        if not any(s in taken or s in owner for s in o.firm):
            own(o, always)
        if o.blob in lazy:
            spare.append(o.blob)
        else:
            unneeded[o.blob] = rivalled(o) if always else Reason(Kind.UNNEEDED if o.symbols else Kind.NO_FUNCTION)
    return Ownership({s: tuple(v) for s, v in lazy.items()}, tuple(spare), unneeded, tuple(doubles))
