"""Tells which symbols the preprocessed texts of blobs could name. The answer may hold too many
symbols, but never too few: what a text does not name, its code cannot use."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from lazyck.files import digest, encode
from lazyck.postbuild.cxx.instances import instances
from lazyck.postbuild.cxx.lexer import IDENTIFIER
from lazyck.postbuild.cxx.mangled import spellings
from lazyck.postbuild.probe import preprocess
from lazyck.postbuild.probe.group import Group
from lazyck.toolchains.command import CompileCommand

Words = frozenset[str]
Named = Callable[[CompileCommand], frozenset[str]]

# What makes a reference weak, or binds it within the blob's own library. What stands around it says
# of which names: the declaration, or all up to the `#pragma` that ends it.
_ATTRIBUTE = re.compile(
    r"""[^;{}]*(?:\b_*weak_*\b|visibility\w*\s*\(\s*"(?!default))[^;{]*"""
    r"""|visibility\s+push\s*\((?!default)[^#]*(?:#(?!\s*pragma\s+GCC\s+visibility)[^#]*)*"""
)


class _Batch:
    """Holds the words of a preprocessed batch of a group: its blobs' own, and the headers'."""

    def __init__(self, group: Group, path: Path) -> None:
        self.group = group
        lines: list[str] = []
        texts = preprocess.split(path, group.sources, group.cwd, lines).texts
        headers = "".join(lines)
        self.in_headers = frozenset(IDENTIFIER.findall(headers))
        self.in_blobs = {source: frozenset(IDENTIFIER.findall(text)) for source, text in texts.items()}
        self.attributed = frozenset(
            word
            for text in (headers, *texts.values())
            for m in _ATTRIBUTE.finditer(text)
            for word in IDENTIFIER.findall(m[0])
        )
        self.declared = frozenset[str]().union(
            *(instances(text, are_declared=True).templates for text in (headers, *texts.values()))
        )


class _Spelled:
    """Holds which of some symbols one set of words names, and for the others what is missing."""

    def __init__(self, spelled: Mapping[str, Sequence[Words]], words: Words) -> None:
        self.here: set[str] = set()
        self._missing: dict[str, list[tuple[Words, str]]] = {}
        for symbol, ways in spelled.items():
            missing = [way - words for way in ways]
            if not all(missing):
                self.here.add(symbol)
                continue
            for way in missing:
                self._missing.setdefault(min(way), []).append((way, symbol))

    def with_words(self, words: Words) -> frozenset[str]:
        """Return what the further `words` name, beside what is named `here`."""
        keys = self._missing.keys() & words
        return frozenset(symbol for key in keys for way, symbol in self._missing[key] if way <= words)


class Mentions:
    """Knows the words of a link's blobs. A blob without a text could name every symbol."""

    def __init__(self, texts: Sequence[tuple[Group, tuple[Path, ...]]]) -> None:
        self._texts = texts
        self._named: dict[frozenset[str], dict[CompileCommand, frozenset[str]]] = {}

    @cached_property
    def _batches(self) -> list[_Batch]:
        return [_Batch(group, path) for group, paths in self._texts for path in paths]

    def by_blob(self, symbols: Iterable[str]) -> Named:
        """Return the function that tells which of the mangled `symbols` a blob could name."""
        every = frozenset(symbols)
        if every not in self._named:
            self._named[every] = self._find(every) if every else {}
        found = self._named[every]
        return lambda blob: found.get(blob, every)

    def _find(self, symbols: frozenset[str]) -> dict[CompileCommand, frozenset[str]]:
        found: dict[CompileCommand, frozenset[str]] = {}
        alike: dict[frozenset[str], frozenset[str]] = {}
        spelled = {symbol: spellings(symbol) for symbol in symbols}
        for batch in self._batches:
            shared = _Spelled(spelled, batch.in_headers)
            for source, words in batch.in_blobs.items():
                named = shared.with_words(words).union(shared.here)
                for blob in batch.group.sources[source]:
                    both = named | found[blob] if blob in found else named
                    found[blob] = alike.setdefault(both, both)
        return found

    def digests(self, symbols: Iterable[str], blobs: Iterable[CompileCommand]) -> dict[CompileCommand, str]:
        """Return for each of the `blobs` a digest of those of the `symbols` that it could name."""
        names_of = self.by_blob(symbols)
        named = {blob: names_of(blob) for blob in blobs}
        said = {names: digest(*map(encode, sorted(names))) for names in set(named.values())}
        return {blob: said[names] for blob, names in named.items()}

    def attributed(self, symbols: Iterable[str]) -> frozenset[str]:
        """Return those of the `symbols` to which a text may make references weak, or bind them
        within one library."""
        return frozenset(s for s in symbols if any(way & self._attributed for way in spellings(s)))

    @cached_property
    def _attributed(self) -> Words:
        return frozenset[str]().union(*(batch.attributed for batch in self._batches))

    @cached_property
    def groups(self) -> dict[CompileCommand, Group]:
        """Return the group of each blob with a text."""
        return {blob: group for group, _ in self._texts for blobs in group.sources.values() for blob in blobs}

    @cached_property
    def declared_instances(self) -> frozenset[str]:
        """Return the templates of which a text declares an instance `extern`."""
        return frozenset[str]().union(*(batch.declared for batch in self._batches))
