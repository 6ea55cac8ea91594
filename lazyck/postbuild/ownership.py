"""Decides which symbols become stubs and which blobs stay eager, by symbol names alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.toolchains.command import CompileCommand


@dataclass(frozen=True)
class Ownership:
    lazy: Mapping[CompileCommand, tuple[str, ...]]  # the symbols of each blob that get stubs
    spare: tuple[CompileCommand, ...]  # the lazy blobs that nothing in the link needs
    unneeded: Mapping[CompileCommand, Reason]  # the blobs that must be eager

    @cached_property
    def stubs(self) -> frozenset[str]:
        return frozenset(symbol for symbols in self.lazy.values() for symbol in symbols)


def assign(
    offers: Sequence[Probed], undefined: Iterable[str], defined: Iterable[str], strong: Iterable[str] | None = None
) -> Ownership:
    """Give each symbol to the first blob among `offers` that defines it, in link order.

    `undefined`, `defined` and `strong` (those of `defined` that are not weak; default: all) come
    from the real objects. A symbol that a real object defines needs no stub, unless it is weak
    there and not in a blob, as for a linker. All other symbols that a lazy blob defines get
    a stub, needed or not: other blobs may call them, and the library exports them as it does when
    it is built ahead of time. A symbol that a blob defines weakly gets a stub only if it is needed.

    A blob of which nothing is needed is lazy too, so that it costs no more than the others. But if
    a real object or another blob also defines one of its functions, the linker decides which of the
    two wins, or refuses both, and the blob must be a real object.
    """
    counts = Counter(chain.from_iterable(o.firm for o in offers))
    firm, several = counts.keys(), {symbol for symbol, count in counts.items() if count > 1}
    taken = set(defined) if strong is None else set(strong) | (set(defined) - firm)
    wanted = set(undefined) - taken
    unneeded: dict[CompileCommand, Reason] = {}
    for o in offers:
        if rivals := o.firm & (taken | several):
            unneeded[o.blob] = Reason(ReasonKind.RIVALLED, min(rivals))
    offers = [o for o in offers if o.blob not in unneeded]
    needed = [o for o in offers if not wanted.isdisjoint(o.symbols)]
    chosen = {o.blob for o in needed}
    owner: dict[str, CompileCommand] = {}
    lazy: dict[CompileCommand, list[str]] = {}

    def own(offer: Probed, symbols: Iterable[str]) -> None:
        for symbol in symbols:
            if symbol in taken or (symbol in offer.merged and (symbol in firm or symbol in owner)):
                continue
            if owner.setdefault(symbol, offer.blob) == offer.blob:
                lazy.setdefault(offer.blob, []).append(symbol)

    def rivalled(offer: Probed) -> Reason:
        return Reason(ReasonKind.RIVALLED, next((s for s in offer.symbols if s in taken or s in owner), ""))

    # Needed blobs come first: one that merely defines a symbol too must not take it from them.
    for o in needed:
        own(o, (s for s in dict.fromkeys(o.symbols) if s not in o.weak or s in wanted))
    spare: list[CompileCommand] = []
    for o in offers:
        if o.blob in chosen:
            if o.blob not in lazy:  # an earlier blob has all that is needed of it
                unneeded[o.blob] = rivalled(o)
            continue
        always = [s for s in dict.fromkeys(o.symbols) if s not in o.weak]
        own(o, always)
        if o.blob in lazy:
            spare.append(o.blob)
        else:
            unneeded[o.blob] = (
                rivalled(o) if always else Reason(ReasonKind.UNNEEDED if o.symbols else ReasonKind.NO_FUNCTION)
            )
    return Ownership({s: tuple(v) for s, v in lazy.items()}, tuple(spare), unneeded)
