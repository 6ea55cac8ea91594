"""Finds the `#include` directives of a source by their spelling alone, whatever its conditionals
say, and rewrites those that name absolute paths."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from _lazyck.files import encode
from _lazyck.postbuild.cxx.lexer import without_comments

_SPLICE = re.compile(r"\\[ \t\r]*\n")
_BLANKS = r"(?:[ \t\f\v]|/\*(?s:.*?)\*/)*"
_INCLUDE = rf"{_BLANKS}(?:include|import)\b{_BLANKS}"
_NEXT = rf"{_BLANKS}include_next\b{_BLANKS}"
# The patterns are keyed by how a directive may begin: one with a fixed beginning is searched for
# fast.
_INCLUDES = {
    lead: re.compile(rf"{re.escape(lead)}(?:{_INCLUDE}|{_NEXT})(\"[^\"\n]+|<[^>\n]+|[A-Za-z_])")
    for lead in ("#", "%:", "??=")
}
# What is rewritten must be a directive rather than part of a string, so it begins its line.
_ABSOLUTE = re.compile(rf"^([ \t]*#{_INCLUDE})[\"<](/[^\">\n]+)[\">]".encode(), re.MULTILINE)
_NEARBY = re.compile(rf"^[ \t]*#(?:{_INCLUDE}\"|{_NEXT})".encode(), re.MULTILINE)
_ASKED = re.compile(rb"__has_include(?:_next)?\s*\(\s*[\"<]([^\">\n]+)[\">]")


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
    status = os.stat(file)
    return _of_file(file, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=1 << 16)
def _of_file(file: str, _stamp: tuple[int, ...]) -> tuple[frozenset[str], bool]:
    return included_names(Path(file).read_bytes().decode("utf-8", "surrogateescape"))


def asked_names(data: bytes) -> frozenset[str]:
    """Return the names for which the text of a file asks by `__has_include`."""
    return frozenset(map(os.fsdecode, _ASKED.findall(data))) if b"__has_include" in data else frozenset()


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
