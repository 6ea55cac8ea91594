"""Tells which symbols the preprocessed texts of blobs could name. The answer may hold too many
symbols, but never too few: what a text does not name, its code cannot use."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from lazyck.files import digest, encode
from lazyck.postbuild.cxx.c_names import c_names
from lazyck.postbuild.cxx.instances import instances
from lazyck.postbuild.cxx.lexer import IDENTIFIER
from lazyck.postbuild.cxx.mangled import spellings
from lazyck.postbuild.probe import preprocess
from lazyck.postbuild.probe.group import Group
from lazyck.toolchains.command import CompileCommand

Words = frozenset[str]
Ways = tuple[Words, ...]  # to spell one symbol
Named = Callable[[CompileCommand], frozenset[str]]

# What makes a reference weak, or binds it within the blob's own library.
_ATTRIBUTE = re.compile(
    r"""\b_*weak_*\b|visibility\w*\s*\(\s*"(?!default)|(?P<region>\bvisibility\s+push\s*\((?!default))"""
)


def _attributed(text: str) -> Iterator[str]:
    """Yield the words of each declaration with such an attribute, or of all up to the `#pragma`
    that ends it."""
    for m in _ATTRIBUTE.finditer(text):
        start = max(text.rfind(c, 0, m.start()) for c in ";{}") + 1
        ends = (text.find(c, m.end()) for c in (["visibility pop"] if m["region"] else ";{"))
        end = min((at for at in ends if at >= 0), default=len(text))
        yield from IDENTIFIER.findall(text, start, end)


class _Texts:
    """Holds what a group's preprocessed batches say: the blobs' own text, and the headers'. What
    the headers of one batch have said is left out of later ones."""

    def __init__(self, group: Group, batches: Iterable[Path]) -> None:
        self.group, self._own = group, dict[str, str]()
        said: list[str] = []
        for path in batches:
            found, headers = preprocess.headers_in(path, group.sources, group.cwd)
            said.append(preprocess.MARKER.sub("", headers))  # which names files, whose names are no identifiers
            self._own |= {source: self._own.get(source, "") + text for source, text in found.texts.items()}
        self._headers = "".join(said)
        self._texts = (self._headers, *self._own.values())

    @cached_property
    def in_headers(self) -> Words:
        return frozenset(IDENTIFIER.findall(self._headers))

    @cached_property
    def in_blobs(self) -> dict[str, Words]:
        return {source: frozenset(IDENTIFIER.findall(text)) for source, text in self._own.items()}

    @cached_property
    def attributed(self) -> Words:
        return frozenset(word for text in self._texts for word in _attributed(text))

    @cached_property
    def declared(self) -> frozenset[str]:
        return frozenset[str]().union(*(instances(text, are_declared=True).templates for text in self._texts))

    @cached_property
    def c_names(self) -> frozenset[str]:
        return frozenset[str]().union(*(c_names(text, is_c=self.group.is_c) for text in self._texts))


class _Spelled:
    """Tells which symbols the words of a group name. Thousands of blobs may name the same thousands
    of symbols, so equal answers are one object."""

    def __init__(self, by_spelling: Mapping[Ways, Iterable[str]], words: Words) -> None:
        self._by_spelling = by_spelling
        self._here: set[Ways] = set()
        self._missing: dict[str, list[tuple[Words, Ways]]] = {}
        for ways in by_spelling:
            missing = [way - words for way in ways]
            if not all(missing):
                self._here.add(ways)
                continue
            for way in missing:
                self._missing.setdefault(min(way), []).append((way, ways))
        self._known: dict[frozenset[Ways], frozenset[str]] = {}

    def with_words(self, words: Words) -> frozenset[str]:
        """Return the symbols that the headers' and the further `words` name."""
        keys = self._missing.keys() & words
        more = frozenset(ways for key in keys for way, ways in self._missing[key] if way <= words)
        if more not in self._known:
            self._known[more] = frozenset(s for ways in self._here | more for s in self._by_spelling[ways])
        return self._known[more]


class Mentions:
    """Knows the words of a link's blobs. A blob without a text could name every symbol."""

    def __init__(self, texts: Sequence[tuple[Group, tuple[Path, ...]]]) -> None:
        self._texts = texts
        self._named: dict[frozenset[str], dict[CompileCommand, frozenset[str]]] = {}

    @cached_property
    def _by_group(self) -> list[_Texts]:
        return [_Texts(group, batches) for group, batches in self._texts]

    def by_blob(self, symbols: Iterable[str]) -> Named:
        """Return the function that tells which of the mangled `symbols` a blob could name."""
        every = frozenset(symbols)
        if every not in self._named:
            self._named[every] = self._find(every) if every else {}
        found = self._named[every]
        return lambda blob: found.get(blob, every)

    def _find(self, symbols: frozenset[str]) -> dict[CompileCommand, frozenset[str]]:
        found: dict[CompileCommand, frozenset[str]] = {}
        by_spelling: dict[Ways, list[str]] = {}
        for symbol in symbols:
            by_spelling.setdefault(spellings(symbol), []).append(symbol)
        for texts in self._by_group:
            spelled = _Spelled(by_spelling, texts.in_headers)
            for source, words in texts.in_blobs.items():
                named = spelled.with_words(words)
                for blob in texts.group.sources[source]:
                    found[blob] = named | found[blob] if blob in found else named
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
        return frozenset[str]().union(*(texts.attributed for texts in self._by_group))

    def c_names(self, blobs: Collection[CompileCommand]) -> frozenset[str]:
        """Return the names with C linkage that `blobs` spell and that their texts declare."""
        found: set[str] = set()
        for texts in self._by_group:
            for source, words in texts.in_blobs.items():
                if any(blob in blobs for blob in texts.group.sources[source]):
                    found |= words & texts.c_names
        return frozenset(found)

    @cached_property
    def groups(self) -> dict[CompileCommand, Group]:
        """Return the group of each blob with a text."""
        return {blob: group for group, _ in self._texts for blobs in group.sources.values() for blob in blobs}

    @cached_property
    def declared_instances(self) -> frozenset[str]:
        """Return the templates of which a text declares an instance `extern`."""
        return frozenset[str]().union(*(texts.declared for texts in self._by_group))
