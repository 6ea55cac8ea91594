"""Removes the bodies of functions from preprocessed headers: a compiler needs none to tell a blob's
symbols.

With the headers of torch or CUTLASS, a compiler spends most of its time on these bodies: it reads
them, and instantiates what they use. A declaration's meaning depends on a body only if that is
`constexpr` or has a type deduced from it. Such bodies stay. All others become a trap rather than
vanish, so that an inline function remains inline. This decides where a vtable goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from _lazyck.postbuild.cxx.lexer import STRUCTURE

_TRAP = " __builtin_trap(); "
# If a head contains one of these, other declarations may depend on the body, or it is no plain
# function's.
_MATTERS = re.compile(r"\b(?:constexpr|consteval|auto|requires|concept|try|catch|asm)\b|=\s*\[")
_FUNCTION = re.compile(r"\)\s*(?:(?:const|noexcept|override|final|volatile|mutable)\b\s*|&\s*)*$")
_SCOPE = re.compile(r'\b(?:namespace|class|struct|union)\b|\bextern\s*"')
_ATTRIBUTE = re.compile(
    r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)|alignas\s*\([^()]*\)|\[\[.*?\]\]|^#.*$", re.MULTILINE
)


def without_bodies(text: str) -> str:
    """Return the declarations of `text`, which is preprocessed C or C++. Line breaks within bodies
    are lost.

    This reads brackets and words only. Where they mislead it, the text either fails to compile or
    keeps its meaning: only what stands between a head that ends like a function's and the closing
    brace is changed.
    """
    out: list[str] = []
    done = start = depth = 0  # up to where text is written; the current declaration's start; open parentheses
    marks = STRUCTURE.finditer(text)
    for mark in marks:
        at = mark.start()
        kind = text[at]
        if kind == "(":
            depth += 1
        elif kind == ")":
            depth = max(0, depth - 1)
        elif kind in ";}":
            start = start if depth else mark.end()
        elif kind == "{" and depth:
            _skip(marks, text)
        elif kind == "{":
            head = _ATTRIBUTE.sub("", text[start:at])
            if _FUNCTION.search(head):
                end = _skip(marks, text)
                # A body without a statement may be a variable's initializer: void
                # (*f)(int){nullptr};
                if text.find(";", at, end) > 0 and not _MATTERS.search(head):
                    out += [text[done : mark.end()], _TRAP]
                    done = end
                start = end + 1
            elif _SCOPE.search(head):
                start = mark.end()
            else:  # an enumeration or an initializer: the declaration goes on after it
                _skip(marks, text)
    out.append(text[done:])
    return "".join(out)


def _skip(marks: Iterator[re.Match[str]], text: str) -> int:
    """Read on to the brace that closes the open one, and return its index."""
    depth = 1
    for mark in marks:
        kind = text[mark.start()]
        depth += (kind == "{") - (kind == "}")
        if depth == 0:
            return mark.start()
    return len(text)
