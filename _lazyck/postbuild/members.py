"""Finds the members of static archives that a link takes."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from _lazyck.command import CompileCommand
from _lazyck.postbuild.cxx.mangled import template_of
from _lazyck.postbuild.mentions import Mentions
from _lazyck.postbuild.objects import elf
from _lazyck.postbuild.objects.inputs import LinkInputs
from _lazyck.postbuild.objects.symbols import Names, Symbols
from _lazyck.postbuild.probe.probe import ProbeResult


@dataclass(frozen=True)
class Part:
    """Describes something that a link may take: what it defines, and what it leaves undefined."""

    name: Hashable
    defines: frozenset[str]
    needs: frozenset[str]


def pulled(parts: Sequence[Part], wanted: Iterable[str], defined: Iterable[str]) -> set[Hashable]:
    """Return the names of those `parts`, given in link order, that a link takes if it wants the
    symbols `wanted` and has `defined`. Of several parts with a symbol, the first is taken."""
    first: dict[str, Part] = {}
    for part in parts:
        for symbol in part.defines:
            first.setdefault(symbol, part)
    found: set[Hashable] = set()
    have, left = set(defined), list(wanted)
    while left:
        symbol = left.pop()
        if symbol in first and symbol not in have:
            found.add(first[symbol].name)
            have |= first[symbol].defines
            left += first[symbol].needs
    return found


class Members:
    """Tells which blobs of static archives nothing in a link needs. An ahead-of-time library does
    not contain these.

    Only its compile could tell exactly what a lazy blob needs, so everything that its text may
    refer to counts as needed.
    """

    def __init__(self, inputs: LinkInputs, probed: ProbeResult, found: Symbols, mentions: Mentions) -> None:
        self._inputs, self._found, self._mentions = inputs, found, mentions
        self._probed = {p.blob: p for p in probed.probed}
        self._used: tuple[frozenset[str], dict[CompileCommand, frozenset[str]]] = frozenset(), {}

    def unneeded(self, compiled: Mapping[CompileCommand, Names], needed: frozenset[str]) -> frozenset[CompileCommand]:
        """Return the blobs that are left out if those in `compiled` are real objects and lazy blobs
        need the symbols `needed` besides. Raises `LazyckError` for a damaged library."""
        optional = self._inputs.optional
        if not optional or self._found.unread:
            return frozenset()
        exact = self._pulled(compiled, needed, {})
        if optional <= exact:
            return frozenset()
        wanted = self._of_interest(compiled, exact)
        if self._used[0] != wanted:
            self._used = wanted, self._mentions.used(wanted)
        lazy = self._probed.keys() - compiled.keys()
        return optional - self._pulled(compiled, needed, {b: self._used[1].get(b, wanted) for b in lazy})

    def _pulled(
        self,
        compiled: Mapping[CompileCommand, Names],
        needed: frozenset[str],
        used: Mapping[CompileCommand, frozenset[str]],
    ) -> set[Hashable]:
        parts = [Part(n, n.defined, n.undefined) for n in self._found.optional]
        wanted, defined = needed | self._asked_for, set(self._given.defined)
        for blob in self._inputs.blobs:
            names, p = compiled.get(blob), self._probed.get(blob)
            if names is not None:
                part = Part(blob, names.defined, names.undefined)
            elif p is not None:
                every = frozenset(p.symbols).union(p.unreachable, p.kernels, p.weak_data)
                part = Part(blob, every, p.needs if p.needs is not None else used.get(blob, frozenset()))
            else:
                continue
            if blob in self._inputs.optional:
                parts.append(part)
            else:
                wanted |= part.needs
                defined |= part.defines
        return pulled(parts, wanted, defined)

    def _of_interest(self, compiled: Mapping[CompileCommand, Names], taken: set[Hashable]) -> frozenset[str]:
        """Return what lazy blobs may need from the parts that nothing else needs, and from the
        parts that lead to these."""
        found = set(self._offered(compiled, self._inputs.optional - taken))
        left = [n for n in self._found.optional if n not in taken]
        while more := [n for n in left if not n.undefined.isdisjoint(found)]:
            left = [n for n in left if n not in more]
            found.update(*(n.defined for n in more))
        return frozenset(found)

    def _offered(self, compiled: Mapping[CompileCommand, Names], blobs: Iterable[CompileCommand]) -> Iterator[str]:
        """Yield the symbols of `blobs` that stay undefined in files that use them: all but inline
        functions and implicit instances."""
        for blob in blobs:
            names, p = compiled.get(blob), self._probed.get(blob)
            if names is not None:
                declared = self._mentions.declared_instances
                yield from names.strong
                yield from (s for s in names.defined - names.strong if template_of(s) in declared)
            elif p is not None:
                yield from frozenset(p.symbols).union(p.unreachable, p.kernels) - p.weak

    @cached_property
    def _given(self) -> Names:
        """Return the names of what the link takes in any case, without blobs."""
        whole = [n for path, n in self._found.files.items() if path in self._inputs.whole]
        defined = self._found.objects.defined.union(*(n.defined for n in whole))
        return Names(defined, self._found.objects.undefined.union(*(n.undefined for n in whole)))

    @cached_property
    def _asked_for(self) -> frozenset[str]:
        """Return what real objects, shared libraries and the link's options ask for."""
        shared = (elf.read_shared(path).undefined for _, path in self._inputs.libraries)
        return self._given.undefined.union(self._inputs.wanted, *shared)
