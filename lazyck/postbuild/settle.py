"""Decides which blobs of a link stay lazy."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lazyck.postbuild.eager import EagerObject, HostUnit, HostUnits, compile_eagerly
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.objects import kernels, symbols
from lazyck.postbuild.ownership import Ownership, assign
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.probe.probe import ProbeResult
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.postbuild.references import ArchiveMembers, TextReferences
from lazyck.toolchains.command import CompileCommand


@dataclass(frozen=True)
class Settled:
    """Holds the owner of each symbol, and the decision about each blob."""

    owned: Ownership
    lazy: tuple[Probed, ...]
    objects: tuple[EagerObject, ...]  # of eager blobs
    copies: frozenset[CompileCommand] = frozenset()  # left out: an earlier blob of the source defines what they would
    unneeded: frozenset[CompileCommand] = frozenset()  # of static archives, left out too

    @property
    def compiled(self) -> list[EagerObject]:
        return [made for made in self.objects if made.error is None]

    @property
    def units(self) -> list[HostUnit]:
        return [made.unit for made in self.objects if made.unit]

    @property
    def failed(self) -> list[EagerObject]:
        return [made for made in self.objects if made.error is not None]


class Settler:
    """Decides about the blobs of one link. What was compiled once is kept."""

    def __init__(
        self,
        context: LinkContext,
        probed: ProbeResult,
        found: symbols.LinkSymbols,
        reader: symbols.SymbolReader,
        references: TextReferences,
        units: HostUnits,
    ) -> None:
        self._context, self._probed, self._reader, self._units = context, probed, reader, units
        self._directory = context.directory / "eager"
        shutil.rmtree(self._directory, ignore_errors=True)
        self._objects: dict[CompileCommand, EagerObject] = {}
        self._copies = copies_in((p.blob, frozenset(p.symbols)) for p in probed.probed)
        self._defined: dict[CompileCommand, symbols.SymbolNames] = {}
        self._names = [found.objects, symbols.SymbolNames(undefined=found.members.undefined)]
        self._files = dict(found.files)
        self._unneeded: frozenset[CompileCommand] = frozenset()
        self._members = ArchiveMembers(context.inputs, probed, found, references)

    def settle(self, eager: Mapping[CompileCommand, Reason], needed: frozenset[str]) -> Settled:
        """Return what is lazy if `eager` (blob to reason) is not, and blobs need symbols `needed`.

        Eager blobs are real objects: what they leave undefined can make another blob needed. So
        they are compiled in rounds. The first round has those that had to be eager, later ones have
        those whose functions real objects define too.
        """
        by_blob = {p.blob: p for p in self._probed.probed}
        self._compile(self._probed.eager)
        self._compile(eager)
        every = [p for p in self._probed.probed if p.blob not in self._copies]
        while True:
            self._unneeded = self._members.unneeded(self._defined, needed) - {
                e.blob for e in self._objects.values() if e.error
            }
            offers = [o for o in every if o.blob not in self._objects and o.blob not in self._unneeded]
            real = self.real()
            owned = assign(offers, real.undefined | needed, real.defined, real.strong)
            reasons, nothing = dict(owned.unneeded), Reason(ReasonKind.NO_FUNCTION)
            left = (real.undefined | needed) - real.defined
            wanted = left.union(*(by_blob[blob].needs or () for blob in owned.lazy)) - real.defined
            for p in offers:
                blob = p.blob
                if launched := left.intersection(p.kernels):
                    kernel = min(launched)
                    by = next((path for path, names in self._files.items() if kernel in names.undefined), "")
                    reasons[blob] = kernels.launched(kernel, symbols.source_name(by), self._context.env)
                elif blob in owned.lazy and (used := left.intersection(p.unreachable)):
                    reasons[blob] = Reason(ReasonKind.HIDDEN, min(used))
                elif blob in owned.lazy and (data := wanted & p.weak_data):
                    reasons[blob] = Reason(ReasonKind.TEMPLATE_DATA, ", ".join(sorted(data)[:3]))
                elif p.kernels and reasons.get(blob) == nothing:
                    is_hidden = set(p.kernels) <= set(p.unreachable)
                    reasons[blob] = Reason(ReasonKind.KERNELS_HIDDEN if is_hidden else ReasonKind.KERNELS_ALONE)
                elif p.unreachable and reasons.get(blob) == nothing:
                    reasons[blob] = Reason(ReasonKind.HIDDEN, p.unreachable[0])
            if not reasons:
                left_out = self._copies | self._unneeded
                objects = tuple(made for blob, made in self._objects.items() if blob not in left_out)
                return Settled(owned, tuple(offers), objects, self._copies, self._unneeded - self._copies)
            self._compile(reasons)

    def forget_units(self, blobs: Iterable[CompileCommand]) -> None:
        """Have `blobs` compiled anew, as a whole."""
        for blob in blobs:
            if (made := self._objects.get(blob)) and made.unit:
                del self._objects[blob]

    def real(self) -> symbols.SymbolNames:
        """Return the names of the link's objects and of the eager blobs' objects."""
        left_out = self._copies | self._unneeded
        own = (names for blob, names in self._defined.items() if blob not in left_out)
        return symbols.together((*self._names, *own))

    def _compile(self, blobs: Mapping[CompileCommand, Reason]) -> None:
        fresh = {blob: reason for blob, reason in blobs.items() if blob not in self._objects}
        if not fresh:
            return
        for made in compile_eagerly(self._context, fresh, self._directory, self._probed.keys, self._units):
            self._objects[made.blob] = made
            if made.error is None:
                names = self._reader.object(str(made.object)) or symbols.SymbolNames()
                self._defined[made.blob] = self._files[str(made.object)] = names
        self._copies |= copies_in((blob, names.strong) for blob, names in self._defined.items())


def copies_in(blobs: Iterable[tuple[CompileCommand, frozenset[str]]]) -> frozenset[CompileCommand]:
    """Return those of `blobs` that define what an earlier blob of the same source does. `blobs`
    pairs each with what it defines. Copies are, for example, the static and the PIC object of one
    file in two archives: a linker takes the first of them too."""
    seen: set[tuple[str, frozenset[str]]] = set()
    found = set()
    for blob, defined in blobs:
        if defined and (blob.source, defined) in seen:
            found.add(blob)
        seen.add((blob.source, defined))
    return frozenset(found)
