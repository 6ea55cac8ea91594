"""Finds the `#include` directives of a source by their spelling alone, whatever its conditionals
say, rewrites those that name absolute paths, and tells which headers of those that a group of blobs
reads one blob can read. A change in the others keeps its cache entry.

The group's list comes from the compiler and is exact, so only what a blob can *not* reach is left
to decide. Names alone decide that, whatever the conditionals say and whichever directory would win.
Where names do not tell (an `#include MACRO`, a header that no text mentions because the driver adds
it), the blob reaches the header.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from lazyck.files import encode
from lazyck.postbuild.cxx.lexer import without_comments


class HeaderReach:
    """Finds what the blobs of a group reach of `files`. Those for which `is_common` holds, and what
    these lead to, belong to every blob, because the driver may add them by itself."""

    def __init__(self, files: frozenset[str], sources: Iterable[str], is_common: Callable[[str], bool]) -> None:
        self._files = files
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
            found = self._files if computed else frozenset().union(*map(self._matches, names))
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


_SPLICE = re.compile(r"\\[ \t\r]*\n")
_BLANKS = r"(?:[ \t\f\v]|/\*(?s:.*?)\*/)*"
_INCLUDE = rf"{_BLANKS}(?:include|import)\b{_BLANKS}"
_NEXT = rf"{_BLANKS}include_next\b{_BLANKS}"
# The patterns are keyed by how a directive may begin: a fixed beginning is found fast.
_INCLUDES = {
    lead: re.compile(rf"{re.escape(lead)}(?:{_INCLUDE}|{_NEXT})(\"[^\"\n]+|<[^>\n]+|[A-Za-z_])")
    for lead in ("#", "%:", "??=")
}
# What is rewritten must be a directive rather than part of a string, so it begins its line.
_ABSOLUTE = re.compile(rf"^([ \t]*#{_INCLUDE})[\"<](/[^\">\n]+)[\">]".encode(), re.MULTILINE)
_NEARBY = re.compile(rf"^[ \t]*#(?:{_INCLUDE}\"|{_NEXT})".encode(), re.MULTILINE)
_ASKED = re.compile(r"__has_include(?:_next)?\s*\(\s*([\"<][^\">\n]+|[A-Za-z_])")
_DEFINED = re.compile(r"#[ \t]*define\b[^\n\"<]*[\"<]([^\">\n]+)[\">]")


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


def included_by(file: str) -> tuple[frozenset[str], bool]:
    """Return `included_names` of a file, read once while unchanged. Raises `OSError`."""
    return _names_in(file)[:2]


def asked_by(files: Iterable[str], values: Iterable[str] = ()) -> frozenset[str]:
    """Return the names for which `files` may ask by `__has_include`. If one asks for a macro's
    value, these are all names that macros of theirs have for values, and `values`, which the
    command line gives to macros. Raises `OSError`."""
    known = [_names_in(file)[2:] for file in files]
    asked = frozenset().union(*(names for names, _ in known))
    return asked.union(values, *(defined for _, defined in known)) - {""} if "" in asked else asked


def _names_in(file: str) -> tuple[frozenset[str], bool, frozenset[str], frozenset[str]]:
    status = os.stat(file)
    return _of_file(file, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=1 << 16)
def _of_file(file: str, _stamp: tuple[int, ...]) -> tuple[frozenset[str], bool, frozenset[str], frozenset[str]]:
    """Return `included_names`, the names that `__has_include` asks for (empty: a macro's value),
    and those in macros."""
    text = Path(file).read_bytes().decode("utf-8", "surrogateescape")
    asked = [name[1:] if name[0] in '"<' else "" for name in _ASKED.findall(text)] if "__has_include" in text else []
    return *included_names(text), frozenset(asked), frozenset(_DEFINED.findall(text))


def depends_on_place(data: bytes) -> bool:
    """Return whether the text of a file may include other files if it stands elsewhere."""
    return _NEARBY.search(data) is not None


def with_relative_includes(data: bytes, place: str, where: Mapping[str, str]) -> bytes:
    """Return the text of a file at `place`, with absolute includes of files of the bundle made
    relative. `where` maps these files to their places. CMake, for example, names each source of a
    unity build by its path."""

    def relative(m: re.Match[bytes]) -> bytes:
        target = where.get(os.path.normpath(os.fsdecode(m[2])))
        return m[0] if target is None else m[1] + encode(f'"{os.path.relpath(target, os.path.dirname(place))}"')

    return _ABSOLUTE.sub(relative, data) if b"/" in data and b"#" in data else data
