"""Which blobs could refer to given names, by their preprocessed text: cheap, never too few but for names that no text
spells, often too many. What a blob really refers to, a host-only compile of it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lazyck.postbuild import probe_text
from lazyck.postbuild.cxx_lexer import IDENTIFIER
from lazyck.postbuild.cxx_uses import Code, declarations, reaching
from lazyck.postbuild.elf import open_image
from lazyck.postbuild.probe_group import Group


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

    def sources(self, names: frozenset[str]) -> list[str]:
        """The blobs whose own code uses one of `names`, or something in the headers that does."""
        if self._in_headers & names:
            if self._code is None:
                self._code = list(declarations(self._headers))
            names = reaching(self._code, names)
        return [s for s, words in self._in_blobs.items() if words & names and self._uses(s, names)]

    def _uses(self, source: str, names: frozenset[str]) -> bool:
        return any(code.uses(names) for code in declarations(self._texts[source]))


class Mentions:
    """Looks through the texts that the probe left."""

    def __init__(self, texts: Sequence[tuple[Group, tuple[Path, ...]]]) -> None:
        self._texts = texts
        self._batches: list[_Batch] | None = None

    def candidates(self, names: frozenset[str]) -> dict[str, Group]:
        """The sources that may refer to one of `names`, with their groups."""
        if self._batches is None:
            self._batches = [_Batch(group, path) for group, paths in self._texts for path in paths]
        return {source: batch.group for batch in self._batches for source in batch.sources(names)}


def needs_of(group: Group, source: str, output: Path) -> frozenset[str] | None:
    """What `source` leaves undefined when it is compiled for the host; None if that fails."""
    if group.compile(source, output).status != 0:
        return None
    table = open_image(output).symbols()
    output.unlink()
    return frozenset(s.name for s in table if s.section == 0 and s.name and s.binding != "LOCAL")
