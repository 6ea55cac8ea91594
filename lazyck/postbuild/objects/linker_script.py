"""Reads linker scripts that stand in place of libraries: `libm.so` of glibc, oneTBB's `libtbb.so`.

What such a script names is an input of the link, as if the command named it. A script that does
more, such as assigning symbols, is not followed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(r'"([^"]*)"|([(),;])|([^\s"(),;]+)')
_INPUTS = frozenset({"INPUT", "GROUP", "AS_NEEDED"})
_OF_NO_INTEREST = frozenset({"OUTPUT_FORMAT", "OUTPUT_ARCH", "TARGET"})
_LONGEST = 64 << 10  # bytes: those of packages have a few hundred


@dataclass(frozen=True)
class LinkerScript:
    names: tuple[str, ...]  # of files, and words `-lNAME`
    directories: tuple[str, ...]  # to search first


def read(path: str) -> LinkerScript | None:
    """Return what the file at `path` names (see `parse`)."""
    with open(path, "rb") as f:
        return parse(f.read(_LONGEST + 1))


def parse(data: bytes) -> LinkerScript | None:
    """Return what a script names, or None if it is none, or one that does more than name inputs."""
    if len(data) > _LONGEST or b"\0" in data:
        return None
    text = _COMMENT.sub(" ", data.decode("utf-8", "surrogateescape"))
    names: list[str] = []
    directories: list[str] = []
    words = ((m[0] if m[1] is None else m[1], m[1] is not None) for m in _TOKEN.finditer(text))
    for word, _ in words:
        if word == ";":
            continue
        inside = list(_in_brackets(words))
        if word in _INPUTS:
            names += inside
        elif word == "SEARCH_DIR":
            directories += inside
        elif word not in _OF_NO_INTEREST:
            return None
    return LinkerScript(tuple(names), tuple(directories)) if names else None


def _in_brackets(words: Iterator[tuple[str, bool]]) -> Iterator[str]:
    """Yield the names up to the bracket that closes the next one; those in inner lists, too."""
    depth = 0
    for word, is_quoted in words:
        if word == "(" and not is_quoted:
            depth += 1
        elif word == ")" and not is_quoted:
            depth -= 1
        elif depth == 0:
            return
        elif is_quoted or not (word in "," or word in _INPUTS):
            yield word
        if depth == 0:
            return
