"""Tells which members of static archives a link takes, as far as its blobs decide."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from lazyck.postbuild.cxx.mangled import template_of
from lazyck.postbuild.mentions import Mentions
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.elf import SymbolNames
from lazyck.postbuild.objects.inputs import LinkInputs, standard_libraries
from lazyck.postbuild.objects.symbols import LinkSymbols, together
from lazyck.postbuild.probe.probe import ProbeResult
from lazyck.settings.environment import environment
from lazyck.toolchains import linker_options
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.gnu import drops_libraries
from lazyck.toolchains.linker_options import WRAPPED, WRAPPER

Needs = Mapping[CompileCommand, frozenset[str]]


@dataclass(frozen=True)
class Linkable:
    """Describes something that a link may take: what it defines, and what it leaves undefined."""

    name: Hashable
    defines: frozenset[str]
    needs: frozenset[str]
    firm: frozenset[str] = frozenset()  # those of `defines` that nothing else may define
    has_startup: bool = False
    is_library: bool = False  # a shared one
    is_there: bool = False  # that is linked in any case


# Archives and libraries, each with its parts, that the linker scans until it finds nothing more.
Group = Sequence[Sequence[Linkable]]


def pulled(
    scanned: Iterable[Group],
    wanted: Iterable[str],
    defined: Iterable[str],
    wrapped: Iterable[str] = (),
    *,
    in_order: bool = True,
) -> set[Hashable]:
    """Return the names of those parts that a link takes which wants the symbols `wanted`, has
    `defined`, and scans archives in the order `scanned`. What only a later one needs, an earlier
    one does not give, unless the linker looks symbols up rather than scanning `in_order`: it takes
    the first part of all. A reference to a symbol that is `wrapped` wants its wrapper."""
    meant = {symbol: WRAPPER + symbol for symbol in wrapped}
    meant |= {WRAPPED + symbol: symbol for symbol in meant}
    found: set[Hashable] = set()
    have, wants = set(defined), {meant.get(symbol, symbol) for symbol in wanted}

    def take(part: Linkable) -> set[str]:
        found.add(part.name)
        have.update(part.defines & wants if part.is_library and not part.is_there else part.defines)
        more = {meant.get(need, need) for need in part.needs}
        wants.update(more)
        return more

    def exhaust(parts: Sequence[Linkable]) -> bool:
        """Take what is wanted of one archive, in its order. Return whether that is anything."""
        before, now = len(found), -1
        while now != len(found):
            now = len(found)
            for part in parts:
                if part.name not in found and (part.is_there or not have.issuperset(part.defines & wants)):
                    take(part)
        return len(found) > before

    if in_order:
        for group in scanned:
            while any([exhaust(parts) for parts in group]) and len(group) > 1:
                pass
        return found
    first: dict[str, Linkable] = {}
    for part in chain(*chain(*scanned)):
        if part.is_there and not part.is_library:
            take(part)
            continue
        wants.update(part.needs if part.is_there else ())
        for symbol in part.defines:
            first.setdefault(symbol, part)
    left = sorted(wants)
    while left:
        symbol = left.pop()
        if symbol in first and symbol not in have:
            left += sorted(take(first[symbol]))
    return found


@dataclass(frozen=True)
class Members:
    """Says what a link takes of archives."""

    taken: SymbolNames = field(default_factory=SymbolNames)  # of the members that are no blobs
    unneeded: frozenset[CompileCommand] = frozenset()  # blobs that are left out
    pulled: frozenset[str] = frozenset()  # the symbols whose members lazy blobs need
    only_named: frozenset[str] = frozenset()  # symbols of members and blobs that only a text names
    asks: frozenset[CompileCommand] = frozenset()  # lazy blobs whose own compile must tell what they need


class Archives:
    """Tells which members of archives the blobs of a link need. An ahead-of-time library has no
    others.

    What the text of a lazy blob mentions counts as needed. That can be too much. It does no harm if
    it only adds functions. Where it would add code that runs at load, another definition of a
    symbol, be it one of a shared library, or what a reference may name as weak, the compiler is
    asked what the blobs need. The link is by `driver`.
    """

    def __init__(
        self, inputs: LinkInputs, probed: ProbeResult, found: LinkSymbols, mentions: Mentions, driver: Sequence[str]
    ) -> None:
        self._inputs, self._found, self._mentions, self._driver = inputs, found, mentions, driver
        self._probed = {p.blob: p for p in probed.probed}

    def decide(self, compiled: Mapping[CompileCommand, SymbolNames], needed: frozenset[str], needs: Needs) -> Members:
        """Return what is taken if the blobs in `compiled` are real objects, lazy blobs need the
        symbols `needed`, and `needs` has all that some of them need. Raises `LazyckError` for a
        damaged library."""
        members = [
            Linkable(n, n.defined, n.asked_for, n.strong, n.has_startup) for n in chain(*self._found.optional.values())
        ]
        if self._found.unread or not (members or self._inputs.optional):
            return Members()
        lazy = [b for b in self._probed if b not in compiled]
        wrapped = linker_options.wrapped(self._inputs.linker)
        named = self._mentions.by_blob([*self._offered(members, compiled), *(WRAPPED + symbol for symbol in wrapped)])
        wants = {b: needs[b] if b in needs else named(b) for b in lazy}
        parts = {part.name: part for part in [*members, *self._blobs(compiled, wants)]}
        sure = {name: part if name in needs or name not in wants else _asking(part) for name, part in parts.items()}
        taken = self._taken(parts, needed)
        added = taken - self._taken(sure, needed)
        firm = Counter(s for part in parts.values() for s in part.firm)
        firm.update(self._given.strong)
        more = [parts[name] for name in added]
        is_harmful = any(p.has_startup or any(firm[s] > 1 or s in self._elsewhere for s in p.firm) for p in more)
        is_harmful |= bool(self._mentions.attributed(frozenset[str]().union(*(part.defines for part in more))))
        if is_harmful and (asks := frozenset(b for b in lazy if b not in needs and named(b))):
            return Members(asks=asks)
        unneeded = self._inputs.optional - taken
        wanted = frozenset[str]().union(*(wants[b] for b in lazy if b not in unneeded))
        names = together(n for n in chain(*self._found.optional.values()) if n in taken)
        only_named = frozenset[str]().union(*(part.defines for part in more))
        return Members(names, unneeded, (wanted & names.defined) - self._given.defined, only_named)

    def _taken(self, parts: Mapping[Hashable, Linkable], needed: frozenset[str]) -> set[Hashable]:
        """Return the names of those of `parts` that the link takes."""
        firm = {name: replace(p, is_there=True) for name, p in parts.items() if self._is_firm(name)}
        known = {**self._files, **parts, **firm}
        scanned = ([[known[name] for name in names if name in known] for names in each] for each in self._scanned)
        wrapped, in_order = linker_options.wrapped(self._inputs.linker), self._inputs.linker_name in ("bfd", "gold")
        return pulled(scanned, needed | self._inputs.wanted, (), wrapped, in_order=in_order) - self._files.keys()

    def _is_firm(self, name: Hashable) -> bool:
        return isinstance(name, CompileCommand) and name not in self._inputs.optional

    @cached_property
    def _scanned(self) -> list[list[list[Hashable]]]:
        """Return what the link takes or may choose from, in the order in which the linker reads it:
        in each archive its members, and the blobs among them."""

        def held(path: str) -> Iterator[Hashable]:
            yield from [path] if path in self._files else []
            yield from self._found.optional.get(path, ())
            yield from self._inputs.records.get(path, ())

        return [[list(held(path)) for path in group] for group in self._inputs.scanned]

    @cached_property
    def _files(self) -> dict[Hashable, Linkable]:
        """Return the objects and whole archives of the link, and the shared libraries that it
        names: what these define, no later archive has to."""
        inputs = self._inputs
        whole = ((path, names) for path, names in self._found.files.items() if path not in self._found.optional)
        found: dict[Hashable, Linkable] = {p: Linkable(p, n.defined, n.asked_for, is_there=True) for p, n in whole}
        keeps = inputs.linker_name in ("gold", "lld")  # they look at the end at what is needed
        by_driver = drops_libraries(tuple(self._driver), environment()) if inputs.dropped else False
        for path, dropped in inputs.dropped.items():
            library, goes = elf.read_dependency(path), by_driver if dropped is None else dropped
            defined = library.linkable
            found[path] = Linkable(path, defined, library.undefined, is_library=True, is_there=keeps or not goes)
        return found

    def _blobs(self, compiled: Mapping[CompileCommand, SymbolNames], wants: Needs) -> Iterator[Linkable]:
        for blob in self._inputs.blobs:
            names, p = compiled.get(blob), self._probed.get(blob)
            if names is not None:
                yield Linkable(blob, names.defined, names.asked_for, names.strong, names.has_startup)
            elif p is not None:
                every = frozenset(p.symbols).union(p.unreachable, p.kernels, p.weak_data)
                yield Linkable(blob, every, wants[blob], p.firm)

    def _offered(self, members: Sequence[Linkable], compiled: Mapping[CompileCommand, SymbolNames]) -> Iterator[str]:
        """Yield the symbols of optional members and blobs that stay undefined in files that use
        them: all but inline functions and implicit instances."""
        declared = self._mentions.declared_instances
        blobs = (names for blob, names in compiled.items() if blob in self._inputs.optional)
        for defined, strong in [*((m.defines, m.firm) for m in members), *((n.defined, n.strong) for n in blobs)]:
            yield from strong
            yield from (s for s in defined - strong if template_of(s) in declared)
        for blob in self._inputs.optional.difference(compiled):
            if p := self._probed.get(blob):
                yield from frozenset(p.symbols).union(p.unreachable, p.kernels) - p.weak

    @cached_property
    def _given(self) -> SymbolNames:
        """Return the names of what the link takes in any case, without blobs."""
        whole = (n for path, n in self._found.files.items() if path in self._inputs.whole)
        return together([self._found.objects, *whole])

    @cached_property
    def _elsewhere(self) -> frozenset[str]:
        """Return what shared libraries define. A definition in the link would take its place."""
        paths = (*(path for _, path in self._inputs.libraries), *standard_libraries(self._driver))
        return frozenset[str]().union(*(elf.read_dependency(path).defined for path in paths))


def _asking(part: Linkable) -> Linkable:
    """Return a lazy blob's part as if nothing were known of what it needs."""
    return replace(part, needs=frozenset())
