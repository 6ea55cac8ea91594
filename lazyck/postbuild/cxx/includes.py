"""Finds the `#include` directives of a source by their spelling alone, whatever its conditionals
say, and rewrites those that name absolute paths."""

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from lazyck.files import encode

_SPLICE = re.compile(r"\\[ \t\r]*\n")
_BLANKS = r"(?:[ \t\f\v]|/\*(?s:.*?)\*/)*"
_INCLUDE = rf"{_BLANKS}(?:include|import)\b{_BLANKS}"
_NEXT = rf"{_BLANKS}include_next\b{_BLANKS}"
# The patterns are keyed by how a directive may begin: a fixed beginning is found fast.
_INCLUDES = {
    lead: re.compile(rf"{re.escape(lead)}(?:{_INCLUDE}|{_NEXT})(\"[^\"\n]+|<[^>\n]+)") for lead in ("#", "%:", "??=")
}
# What is rewritten must be a directive rather than part of a string, so it begins its line.
_ABSOLUTE = re.compile(rf"^([ \t]*#{_INCLUDE})[\"<](/[^\">\n]+)[\">]".encode(), re.MULTILINE)
_NEARBY = re.compile(rf"^[ \t]*#(?:{_INCLUDE}\"|{_NEXT})".encode(), re.MULTILINE)
_ASKED = re.compile(r"__has_(?:include(?:_next)?|embed)\s*\(\s*([\"<][^\">\n]+|[A-Za-z_])")
_DEFINED = re.compile(r"#[ \t]*define\b[^\n\"<]*[\"<]([^\">\n]+)[\">]")


def included_names(text: str) -> frozenset[str]:
    """Return the names that the text includes, without those that macros name."""
    if "\\" in text:
        text = _SPLICE.sub("", text)
    names = (name for lead, pattern in _INCLUDES.items() if lead in text for name in pattern.findall(text))
    return frozenset(name[1:] for name in names)


def included_by(file: str) -> frozenset[str]:
    """Return `included_names` of a file, read once while unchanged. Raises `OSError`."""
    return _names_in(file)[0]


def asked_by(files: Iterable[str], values: Iterable[str] = ()) -> frozenset[str]:
    """Return the names for which `files` may ask by `__has_include`. If one asks for a macro's
    value, these are all names that macros of theirs have for values, and `values`, which the
    command line gives to macros. Raises `OSError`."""
    known = [_names_in(file)[1:] for file in files]
    asked = frozenset().union(*(names for names, _ in known))
    return asked.union(values, *(defined for _, defined in known)) - {""} if "" in asked else asked


def _names_in(file: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    status = os.stat(file)
    return _of_file(file, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=1 << 16)
def _of_file(file: str, _stamp: tuple[int, ...]) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return `included_names`, the names that `__has_include` and `__has_embed` ask for (empty: a
    macro's value), and those in macros."""
    text = Path(file).read_bytes().decode("utf-8", "surrogateescape")
    asked = [name[1:] if name[0] in '"<' else "" for name in _ASKED.findall(text)] if "__has_" in text else []
    return included_names(text), frozenset(asked), frozenset(_DEFINED.findall(text))


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
