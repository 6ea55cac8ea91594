"""Tells which headers of those that a group of blobs reads one blob can read. A change in the
others keeps its cache entry.

The group's list comes from the compiler and is exact, so only what a blob can *not* reach is left
to decide. Names alone decide that, whatever the conditionals say and whichever directory would win.
Where names do not tell (an `#include MACRO`, a header that no text mentions because the driver adds
it), the blob reaches the header.
"""

import posixpath
from collections.abc import Callable, Iterable

from _lazyck.postbuild.includes import included_by


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
        """Return the files that compiling `source` may read, with headers `forced` before it."""
        begin = self._nexts(source).union(*(self._matches(name) for name in forced))
        if begin not in self._known:
            self._known[begin] = self._closure(begin) | self._common
        return self._known[begin]

    def _nexts(self, file: str) -> frozenset[str]:
        if file not in self._next:
            names, computed = included_by(file)
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
