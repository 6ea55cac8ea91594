"""Tells which blobs could refer to given names, by their preprocessed text. This is cheap. It often
finds too many blobs, and never too few, except for names that no text spells. A host-only compile
says what a blob really refers to."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from types import MappingProxyType

from _lazyck.command import CompileCommand
from _lazyck.files import digest, encode
from _lazyck.postbuild.cxx.lexer import IDENTIFIER
from _lazyck.postbuild.cxx.mangled import class_in, identifiers, scope_of
from _lazyck.postbuild.cxx.uses import Code, declarations, instances, reaching
from _lazyck.postbuild.objects.elf import asked_for, open_image
from _lazyck.postbuild.probe import preprocess
from _lazyck.postbuild.probe.group import Group

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
        self._texts = preprocess.split(path, group.sources, group.cwd, lines).texts
        self._headers = "".join(lines)
        self._in_headers = frozenset(IDENTIFIER.findall(self._headers))
        self._in_blobs = {source: frozenset(IDENTIFIER.findall(text)) for source, text in self._texts.items()}
        self._code: list[Code] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return self._headers, *self._texts.values()

    @property
    def sources(self) -> Iterable[str]:
        """Return the sources of the blobs whose text the batch has."""
        return self._in_blobs

    def marks(self, of_names: Mapping[str, int], own: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, int]]:
        """Yield the blobs whose own code uses one of the names, directly or through something in
        the headers. Names that are the blob's `own` do not count. Each blob comes with the marks of
        the names that it uses."""
        every = reduce(or_, of_names.values(), 0)
        if not self._in_headers.isdisjoint(of_names):
            if self._code is None:
                self._code = list(declarations(self._headers))
            of_names = reaching(self._code, of_names)
        for source, words in self._in_blobs.items():
            wanted = words.intersection(of_names) - own.get(source, frozenset())
            found = 0
            for code in declarations(self._texts[source]) if wanted else ():
                found = reduce(or_, (of_names[n] for n in code.uses(wanted)), found)
                if found == every:
                    break
            if found:
                yield source, found

    def spelled(self, names: Collection[str]) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield for each blob those of `names` that stand in its own text or in the headers'."""
        shared = self._in_headers.intersection(names)
        for source, words in self._in_blobs.items():
            yield source, shared.union(words.intersection(names))

    def named(self, pattern: re.Pattern[str]) -> frozenset[str]:
        """Return the identifiers in the first group of each match of `pattern`."""
        return frozenset(
            name for text in self.texts for m in pattern.finditer(text) for name in IDENTIFIER.findall(m[1])
        )

    def holds(self, names: frozenset[str]) -> bool:
        """Return whether one of `names` stands in the batch's text."""
        return any(not names.isdisjoint(words) for words in (self._in_headers, *self._in_blobs.values()))


class Mentions:
    """Searches the texts that the probe left."""

    def __init__(self, texts: Sequence[tuple[Group, tuple[Path, ...]]]) -> None:
        self._texts = texts
        self._batches: list[_Batch] | None = None

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
        """Return those of the mangled `symbols` that each blob may refer to, by the rules of
        `candidates`. Symbols that no text can spell count for every blob. Blobs without a text are
        left out."""
        wanted = frozenset(symbols)
        names = [{s: names_of(s) for s in wanted} for names_of in (identifiers, self._class_or_name(wanted))]
        bits = {n: 1 << i for i, n in enumerate(sorted(frozenset().union(*(v for d in names for v in d.values()))))}
        masks = [{s: reduce(or_, (bits[n] for n in d[s]), 0) for s in wanted} for d in names]
        unspelled = frozenset(s for s in wanted if not names[0][s])
        found: dict[CompileCommand, frozenset[str]] = {}
        for batch in self._all():
            marks = dict.fromkeys(batch.sources, 0) | dict(batch.marks(bits, {}))
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
            for batch in self._all()
            for source, _ in batch.marks(dict.fromkeys(counts, 1), only)
            for blob in batch.group.sources[source]
        }

    def spelled(self, symbols: Collection[str]) -> dict[CompileCommand, str]:
        """Return for each blob a digest of those of the mangled `symbols` that its compile can
        refer to: those of which it reads a name, and those that no text can spell. Blobs without a
        text are left out."""
        by_name: dict[str, list[str]] = {}
        for symbol in sorted(symbols):
            for name in identifiers(symbol):
                by_name.setdefault(name, []).append(symbol)
        unspelled = digest(*(encode(s) for s in sorted(symbols) if not identifiers(s)))
        # Thousands of blobs may spell the one name of thousands of instances.
        digests = {name: digest(*map(encode, those)) for name, those in by_name.items()}
        read: dict[CompileCommand, frozenset[str]] = {}
        alike: dict[frozenset[str], frozenset[str]] = {}
        for batch in self._all() if symbols else ():
            for source, names in batch.spelled(by_name):
                for blob in batch.group.sources[source]:
                    both = read[blob] | names if blob in read else names
                    read[blob] = alike.setdefault(both, both)
        said = {names: digest(encode(unspelled), *(encode(digests[n]) for n in sorted(names))) for names in alike}
        return {blob: said[names] for blob, names in read.items()}

    @cached_property
    def _classes(self) -> frozenset[str]:
        return frozenset().union(*(batch.named(_CLASS) for batch in self._all()))

    @cached_property
    def _namespaces(self) -> frozenset[str]:
        return frozenset({""}).union(*(batch.named(_NAMESPACE) for batch in self._all()))

    def are_large(self) -> bool:
        """Return whether one of the texts, of whichever blob, takes long to compile."""
        return any(path.stat().st_size > _LARGE for _, paths in self._texts for path in paths)

    def hold(self, symbols: Iterable[str]) -> bool:
        """Return whether a name of the mangled `symbols` stands in any text, used or not."""
        names = frozenset().union(*map(identifiers, symbols))
        return any(batch.holds(names) for batch in self._all())

    @cached_property
    def declared_instances(self) -> frozenset[str]:
        """Return the names of the templates for which some text says `extern template`."""
        texts = (text for batch in self._all() for text in batch.texts)
        return frozenset().union(*(instances(text, are_declared=True).templates for text in texts))

    def _all(self) -> list[_Batch]:
        if self._batches is None:
            self._batches = [_Batch(group, path) for group, paths in self._texts for path in paths]
        return self._batches


def needs_of(group: Group, source: str, output: Path) -> frozenset[str] | None:
    """Return what `source`, compiled for the host, leaves undefined, or None if that fails."""
    if group.compile(source, output, is_settling=True).status != 0:
        return None
    needs = asked_for(open_image(output).symbols())
    output.unlink()
    return needs
