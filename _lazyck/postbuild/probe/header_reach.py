"""Tells which headers of those that a group of blobs reads one blob can read. A change in the
others keeps its cache entry.

The group's list comes from the compiler and is exact, so only what a blob can *not* reach is left
to decide. Names alone decide that, whatever the conditionals say and whichever directory would win.
Where names do not tell (an `#include MACRO`, a header that no text mentions because the driver adds
it), the blob reaches the header.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from _lazyck.postbuild.cxx.lexer import without_comments

_SPLICE = re.compile(r"\\[ \t\r]*\n")
_BLANKS = r"(?:[ \t\f\v]|/\*(?s:.*?)\*/)*"
# The patterns are keyed by how a directive may begin: one with a fixed beginning is searched for
# fast.
_INCLUDES = {
    lead: re.compile(
        rf"{re.escape(lead)}{_BLANKS}(?:include|include_next|import)\b{_BLANKS}(\"[^\"\n]+|<[^>\n]+|[A-Za-z_])"
    )
    for lead in ("#", "%:", "??=")
}


def included_names(text: str) -> tuple[frozenset[str], bool]:
    """Return (names that the text includes, whether it includes one that a macro names)."""
    if "\\" in text:
        text = _SPLICE.sub("", text)
    names = _included(text)
    own = {name for name in names if name[0] in '"<'}
    computed = len(own) < len(names) and any(name[0] not in '"<' for name in _included(without_comments(text)))
    return frozenset(name[1:] for name in own), computed


def _included(text: str) -> list[str]:
    return [name for lead, pattern in _INCLUDES.items() if lead in text for name in pattern.findall(text)]


@lru_cache(maxsize=1 << 16)
def _included_by(file: str, _stamp: tuple[int, ...]) -> tuple[frozenset[str], bool]:
    """Return `included_names` of a file, which is read once while its stamp does not change."""
    return included_names(Path(file).read_bytes().decode("utf-8", "surrogateescape"))


class HeaderReach:
    """Finds what the blobs of a group reach of `files`. Those for which `is_common` holds, and what
    these lead to, belong to every blob, because the driver may add them by itself. With `guesses`,
    a macro is taken to name none of them."""

    def __init__(
        self, files: frozenset[str], sources: Iterable[str], is_common: Callable[[str], bool], *, guesses: bool = False
    ) -> None:
        self._files, self._guesses = files, guesses
        self._by_base: dict[str, list[str]] = {}
        for file in files:
            self._by_base.setdefault(posixpath.basename(file), []).append(file)
        self._next: dict[str, frozenset[str]] = {}
        self._meant: dict[str, frozenset[str]] = {}
        self._known: dict[frozenset[str], frozenset[str]] = {}
        mentioned: set[str] = set()
        for file in (*files, *sources):
            mentioned |= self._nexts(file) - {file}
        common = {f for f in files if is_common(f) or f not in mentioned}
        self._common = self._closure(common)

    def of(self, source: str, forced: Iterable[str] = ()) -> frozenset[str]:
        """Return the files that compiling `source` may read, with the headers named `forced` before
        it."""
        begin = self._nexts(source).union(*(self._matches(name) for name in forced))
        if begin not in self._known:
            self._known[begin] = self._closure(begin) | self._common
        return self._known[begin]

    def _nexts(self, file: str) -> frozenset[str]:
        if file not in self._next:
            status = os.stat(file)
            names, computed = _included_by(file, (status.st_mtime_ns, status.st_size, status.st_ino))
            found = self._files if computed and not self._guesses else frozenset().union(*map(self._matches, names))
            self._next[file] = found
        return self._next[file]

    def _matches(self, name: str) -> frozenset[str]:
        """Return the files that `#include "name"` may mean, from anywhere."""
        if name not in self._meant:
            self._meant[name] = self._looked_for(name)
        return self._meant[name]

    def _looked_for(self, name: str) -> frozenset[str]:
        parts = [p for p in name.split("/") if p not in ("", ".")]
        tail = "/".join(parts[len(parts) - parts[::-1].index("..") :] if ".." in parts else parts)
        if not tail:
            return frozenset()
        if name.startswith("/"):
            tail = parts[-1]
        candidates = self._by_base.get(posixpath.basename(tail), [])
        return frozenset(f for f in candidates if f == tail or f.endswith("/" + tail))

    def _closure(self, begin: Iterable[str]) -> frozenset[str]:
        found = set(begin)
        todo = list(found)
        while todo and len(found) < len(self._files):
            fresh = self._nexts(todo.pop()) - found
            found |= fresh
            todo += fresh
        return frozenset(found)
