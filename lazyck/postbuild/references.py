"""Finds the blobs that may refer to given names, by searching their preprocessed text. The result
may hold too many blobs, but never too few, except for names that no text spells. A host-only
compile gives the exact references."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from types import MappingProxyType

from lazyck.files import digest, encode
from lazyck.postbuild.cxx.lexer import IDENTIFIER
from lazyck.postbuild.cxx.mangled import class_in, identifiers, scope_of, template_of
from lazyck.postbuild.cxx.uses import Code, declarations, instances, reaching
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.elf import asked_for, open_image
from lazyck.postbuild.objects.inputs import LinkInputs
from lazyck.postbuild.objects.symbols import LinkSymbols, SymbolNames
from lazyck.postbuild.probe import preprocess
from lazyck.postbuild.probe.group import Group
from lazyck.postbuild.probe.probe import ProbeResult
from lazyck.toolchains.command import CompileCommand

_LARGE = 8 << 20  # bytes: torch's headers come to 16 MB, most of the standard library's to 2
_NAMESPACE = re.compile(r"\bnamespace\s+([\w:\s]+)[{=]")
_CLASS = re.compile(
    r"\b(?:class|struct|union)\b(?:\s*__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|\s*\[\[.*?\]\])*\s+([A-Za-z_]\w*)"
    r"(?!\w|\s*[,>=])"  # not a template's parameter
)


class _Batch:
    """Holds a preprocessed batch of a group: what its blobs say, and the shared headers."""

    def __init__(self, group: Group, path: Path) -> None:
        self.group = group
        lines: list[str] = []
        self.texts = preprocess.split(path, group.sources, group.cwd, lines).texts
        self.headers = "".join(lines)
        self.in_headers = frozenset(IDENTIFIER.findall(self.headers))
        self.in_blobs = {source: frozenset(IDENTIFIER.findall(text)) for source, text in self.texts.items()}

    @cached_property
    def _code(self) -> list[Code]:
        return list(declarations(self.headers))

    def marks(self, of_names: Mapping[str, int], own: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, int]]:
        """Yield the blobs whose own code uses one of the names, directly or through something in
        the headers. Names that are the blob's `own` do not count. Each blob comes with the marks of
        the names that it uses."""
        every = reduce(or_, of_names.values(), 0)
        if not self.in_headers.isdisjoint(of_names):
            of_names = reaching(self._code, of_names)
        for source, words in self.in_blobs.items():
            wanted = words.intersection(of_names) - own.get(source, frozenset())
            found = 0
            for code in declarations(self.texts[source]) if wanted else ():
                found = reduce(or_, (of_names[n] for n in code.uses(wanted)), found)
                if found == every:
                    break
            if found:
                yield source, found


class TextReferences:
    def __init__(self, texts: Sequence[tuple[Group, tuple[Path, ...]]]) -> None:
        self._texts = texts

    @cached_property
    def _batches(self) -> list[_Batch]:
        return [_Batch(group, path) for group, paths in self._texts for path in paths]

    def candidates(
        self, symbols: Iterable[str], own: Mapping[str, Iterable[str]] = MappingProxyType({})
    ) -> dict[CompileCommand, Group]:
        """Return the blobs that may refer to one of the mangled `symbols`, with their groups. A
        name counts in a source if it can mean more than what is the source's `own`. A source that
        uses a member of a class must somewhere spell two names: the member's and the class's."""
        wanted = frozenset(symbols)
        found = self._users(wanted, own, identifiers)
        return (
            {b: found[b] for b in self._users(wanted, own, self._class_or_name(wanted)) if b in found} if found else {}
        )

    def used(self, symbols: Iterable[str]) -> dict[CompileCommand, frozenset[str]]:
        """Return those of the mangled `symbols` that each blob with a text may refer to, by the
        rules of `candidates`. Symbols that no text can spell count for every blob."""
        wanted = frozenset(symbols)
        names = [{s: names_of(s) for s in wanted} for names_of in (identifiers, self._class_or_name(wanted))]
        bits = {n: 1 << i for i, n in enumerate(sorted(frozenset().union(*(v for d in names for v in d.values()))))}
        masks = [{s: reduce(or_, (bits[n] for n in d[s]), 0) for s in wanted} for d in names]
        unspelled = frozenset(s for s in wanted if not names[0][s])
        found: dict[CompileCommand, frozenset[str]] = {}
        for batch in self._batches:
            marks = dict.fromkeys(batch.in_blobs, 0) | dict(batch.marks(bits, {}))
            for source, mark in marks.items():
                used = unspelled.union(s for s in wanted if all(mask[s] & mark for mask in masks))
                found |= {blob: found.get(blob, frozenset()) | used for blob in batch.group.sources[source]}
        return found

    def _class_or_name(self, symbols: frozenset[str]) -> Callable[[str], frozenset[str]]:
        classes = self._classes.union(map(class_in, symbols)) - self._namespaces

        def names_of(symbol: str) -> frozenset[str]:
            scope = scope_of(symbol)
            return frozenset({scope}) if scope in classes else identifiers(symbol)

        return names_of

    def _users(
        self, symbols: frozenset[str], own: Mapping[str, Iterable[str]], names_of: Callable[[str], frozenset[str]]
    ) -> dict[CompileCommand, Group]:
        names = {s: names_of(s) for s in symbols}
        counts = Counter(n for s in symbols for n in names[s])
        only = {
            source: frozenset(n for n, c in Counter(n for s in mine for n in names[s]).items() if c == counts[n])
            for source, mine in ((source, symbols.intersection(mine)) for source, mine in own.items())
        }
        return {
            blob: batch.group
            for batch in self._batches
            for source, _ in batch.marks(dict.fromkeys(counts, 1), only)
            for blob in batch.group.sources[source]
        }

    def spelled(self, symbols: Collection[str]) -> dict[CompileCommand, str]:
        """Return for each blob with a text a digest of those of the mangled `symbols` that its
        compile can refer to: those of which it reads a name, and those that no text can spell."""
        by_name: dict[str, list[str]] = {}
        for symbol in sorted(symbols):
            for name in identifiers(symbol):
                by_name.setdefault(name, []).append(symbol)
        unspelled = digest(*(encode(s) for s in sorted(symbols) if not identifiers(s)))
        # Thousands of blobs may spell the one name of thousands of instances.
        digests = {name: digest(*map(encode, those)) for name, those in by_name.items()}
        read: dict[CompileCommand, frozenset[str]] = {}
        alike: dict[frozenset[str], frozenset[str]] = {}
        for batch in self._batches if symbols else ():
            shared = batch.in_headers.intersection(by_name)
            for source, words in batch.in_blobs.items():
                names = shared.union(words.intersection(by_name))
                for blob in batch.group.sources[source]:
                    both = read[blob] | names if blob in read else names
                    read[blob] = alike.setdefault(both, both)
        said = {names: digest(encode(unspelled), *(encode(digests[n]) for n in sorted(names))) for names in alike}
        return {blob: said[names] for blob, names in read.items()}

    @cached_property
    def _classes(self) -> frozenset[str]:
        return self._named(_CLASS)

    @cached_property
    def _namespaces(self) -> frozenset[str]:
        return self._named(_NAMESPACE) | {""}

    def _named(self, pattern: re.Pattern[str]) -> frozenset[str]:
        """Return the identifiers in the first group of each match of `pattern`."""
        return frozenset(
            n for text in self._all_texts() for m in pattern.finditer(text) for n in IDENTIFIER.findall(m[1])
        )

    def _all_texts(self) -> Iterator[str]:
        return (text for batch in self._batches for text in (batch.headers, *batch.texts.values()))

    def are_large(self) -> bool:
        """Return whether one of the texts, of whichever blob, takes long to compile."""
        return any(path.stat().st_size > _LARGE for _, paths in self._texts for path in paths)

    def hold(self, symbols: Iterable[str]) -> bool:
        """Return whether a name of the mangled `symbols` stands in any text, used or not."""
        names = frozenset().union(*map(identifiers, symbols))
        read = (words for batch in self._batches for words in (batch.in_headers, *batch.in_blobs.values()))
        return any(not names.isdisjoint(words) for words in read)

    @cached_property
    def declared_instances(self) -> frozenset[str]:
        return frozenset().union(*(instances(text, are_declared=True).templates for text in self._all_texts()))


def needs_of(group: Group, source: str, output: Path) -> frozenset[str] | None:
    """Return what `source`, compiled for the host, leaves undefined, or None if that fails."""
    if group.compile(source, output, is_settling=True).status != 0:
        return None
    needs = asked_for(open_image(output).symbols())
    output.unlink()
    return needs


@dataclass(frozen=True)
class Linkable:
    """Describes something that a link may take: what it defines, and what it leaves undefined."""

    name: Hashable
    defines: frozenset[str]
    needs: frozenset[str]


def pulled(parts: Sequence[Linkable], wanted: Iterable[str], defined: Iterable[str]) -> set[Hashable]:
    """Return the names of those `parts`, given in link order, that a link takes if it wants the
    symbols `wanted` and has `defined`. Of several parts with a symbol, the first is taken."""
    first: dict[str, Linkable] = {}
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


class ArchiveMembers:
    """Tells which blobs of static archives nothing in a link needs: an ahead-of-time library lacks
    them. Only a compile could tell exactly what a lazy blob needs, so everything that its text may
    refer to counts as needed."""

    def __init__(self, inputs: LinkInputs, probed: ProbeResult, found: LinkSymbols, references: TextReferences) -> None:
        self._inputs, self._found, self._references = inputs, found, references
        self._probed = {p.blob: p for p in probed.probed}
        self._used: tuple[frozenset[str], dict[CompileCommand, frozenset[str]]] = frozenset(), {}

    def unneeded(
        self, compiled: Mapping[CompileCommand, SymbolNames], needed: frozenset[str]
    ) -> frozenset[CompileCommand]:
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
            self._used = wanted, self._references.used(wanted)
        lazy = self._probed.keys() - compiled.keys()
        return optional - self._pulled(compiled, needed, {b: self._used[1].get(b, wanted) for b in lazy})

    def _pulled(
        self,
        compiled: Mapping[CompileCommand, SymbolNames],
        needed: frozenset[str],
        used: Mapping[CompileCommand, frozenset[str]],
    ) -> set[Hashable]:
        parts = [Linkable(n, n.defined, n.undefined) for n in self._found.optional]
        wanted, defined = needed | self._asked_for, set(self._given.defined)
        for blob in self._inputs.blobs:
            names, p = compiled.get(blob), self._probed.get(blob)
            if names is not None:
                part = Linkable(blob, names.defined, names.undefined)
            elif p is not None:
                every = frozenset(p.symbols).union(p.unreachable, p.kernels, p.weak_data)
                part = Linkable(blob, every, p.needs if p.needs is not None else used.get(blob, frozenset()))
            else:
                continue
            if blob in self._inputs.optional:
                parts.append(part)
            else:
                wanted |= part.needs
                defined |= part.defines
        return pulled(parts, wanted, defined)

    def _of_interest(self, compiled: Mapping[CompileCommand, SymbolNames], taken: set[Hashable]) -> frozenset[str]:
        """Return what lazy blobs may need from the parts that nothing else needs, and from the
        parts that lead to these."""
        found = set(self._offered(compiled, self._inputs.optional - taken))
        left = [n for n in self._found.optional if n not in taken]
        while more := [n for n in left if not n.undefined.isdisjoint(found)]:
            left = [n for n in left if n not in more]
            found.update(*(n.defined for n in more))
        return frozenset(found)

    def _offered(
        self, compiled: Mapping[CompileCommand, SymbolNames], blobs: Iterable[CompileCommand]
    ) -> Iterator[str]:
        """Yield the symbols of `blobs` that stay undefined in files that use them: all but inline
        functions and implicit instances."""
        for blob in blobs:
            names, p = compiled.get(blob), self._probed.get(blob)
            if names is not None:
                declared = self._references.declared_instances
                yield from names.strong
                yield from (s for s in names.defined - names.strong if template_of(s) in declared)
            elif p is not None:
                yield from frozenset(p.symbols).union(p.unreachable, p.kernels) - p.weak

    @cached_property
    def _given(self) -> SymbolNames:
        """Return the names of what the link takes in any case, without blobs."""
        whole = [n for path, n in self._found.files.items() if path in self._inputs.whole]
        defined = self._found.objects.defined.union(*(n.defined for n in whole))
        return SymbolNames(defined, self._found.objects.undefined.union(*(n.undefined for n in whole)))

    @cached_property
    def _asked_for(self) -> frozenset[str]:
        """Return what real objects, shared libraries and the link's options ask for."""
        shared = (elf.read_shared(path).undefined for _, path in self._inputs.libraries)
        return self._given.undefined.union(self._inputs.wanted, *shared)
