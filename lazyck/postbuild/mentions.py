"""Which blobs could refer to given names, by their preprocessed text: cheap, never too few but for names that no text
spells, often too many. What a blob really refers to, a host-only compile of it says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from lazyck.command import CompileCommand
from lazyck.postbuild import probe_text
from lazyck.postbuild.cxx_lexer import IDENTIFIER, declarator, without_attributes
from lazyck.postbuild.cxx_uses import Code, declarations, reaching
from lazyck.postbuild.elf import asked_for, open_image
from lazyck.postbuild.probe_group import Group

_EXTERN_TEMPLATE = re.compile(r"\bextern\s+template\b([^;{]*);")
_LARGE = 8 << 20  # bytes: torch's headers come to 16 MB, most of the standard library's to 2
_CLASS_NAME = re.compile(r"\s*(?:class|struct|union)\s+(?:[A-Za-z_]\w*\s*::\s*)*([A-Za-z_]\w*)")


class _Batch:
    """One preprocessed batch of a group: what its blobs say, and the headers that they share."""

    def __init__(self, group: Group, path: Path) -> None:
        self.group = group
        lines: list[str] = []
        with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as text:
            self._texts = probe_text.split(text, group.sources, group.cwd, lines).texts
        self._headers = "".join(lines)
        self._in_headers = frozenset(IDENTIFIER.findall(self._headers))
        self._in_blobs = {source: frozenset(IDENTIFIER.findall(text)) for source, text in self._texts.items()}
        self._code: list[Code] | None = None

    def sources(self, names: frozenset[str], own: Mapping[str, frozenset[str]]) -> list[str]:
        """The blobs whose own code uses one of `names` that is not its `own`, or something in the headers that does."""
        if self._in_headers & names:
            if self._code is None:
                self._code = list(declarations(self._headers))
            names = reaching(self._code, names)
        wanted = {s: names - own.get(s, frozenset()) for s in self._in_blobs}
        return [s for s, words in self._in_blobs.items() if words & wanted[s] and self._uses(s, wanted[s])]

    def holds(self, names: frozenset[str]) -> bool:
        """Whether one of `names` stands in its text."""
        return any(not names.isdisjoint(words) for words in (self._in_headers, *self._in_blobs.values()))

    def declared_instances(self) -> set[str]:
        """Names of the templates of which an instance is declared, so that it must come from elsewhere."""
        found = set()
        for text in (self._headers, *self._texts.values()):
            for m in _EXTERN_TEMPLATE.finditer(text) if "template" in text else ():
                plain = without_attributes(m[1])
                of_class = _CLASS_NAME.match(plain)
                found.add(of_class[1] if of_class else declarator(plain)[0])
        return found

    def _uses(self, source: str, names: frozenset[str]) -> bool:
        return any(code.uses(names) for code in declarations(self._texts[source]))


class Mentions:
    """Looks through the texts that the probe left."""

    def __init__(self, texts: Sequence[tuple[Group, tuple[Path, ...]]]) -> None:
        self._texts = texts
        self._batches: list[_Batch] | None = None

    def candidates(
        self, names: frozenset[str], own: Mapping[str, frozenset[str]] = MappingProxyType({})
    ) -> dict[CompileCommand, Group]:
        """The blobs that may refer to one of `names`, with their groups; not those whose sources mean their `own`."""
        return {
            blob: batch.group
            for batch in self._all()
            for source in batch.sources(names, own)
            for blob in batch.group.sources[source]
        }

    def are_large(self) -> bool:
        """Whether it takes long to compile one of the texts, whichever blob it is of."""
        return any(path.stat().st_size > _LARGE for _, paths in self._texts for path in paths)

    def hold(self, names: frozenset[str]) -> bool:
        """Whether one of `names` stands in any text, used or not."""
        return any(batch.holds(names) for batch in self._all())

    def declared_instances(self) -> frozenset[str]:
        """Names of the templates of which some text says `extern template`."""
        return frozenset().union(*(batch.declared_instances() for batch in self._all()))

    def _all(self) -> list[_Batch]:
        if self._batches is None:
            self._batches = [_Batch(group, path) for group, paths in self._texts for path in paths]
        return self._batches


def needs_of(group: Group, source: str, output: Path) -> frozenset[str] | None:
    """What `source` leaves undefined when it is compiled for the host; None if that fails."""
    if group.compile(source, output, is_settling=True).status != 0:
        return None
    needs = asked_for(open_image(output).symbols())
    output.unlink()
    return needs
