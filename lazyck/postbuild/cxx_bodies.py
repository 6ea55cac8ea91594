"""Preprocessed headers without the bodies of their functions: a compiler that is asked for a blob's symbols needs none.

Most of what a compiler does with the headers of torch or CUTLASS, it does for these bodies: it reads them, and
instantiates what they use. A declaration's meaning depends on a body only where that is `constexpr` or has a type
deduced from it, and such bodies stay. All others become a trap rather than vanish: so what was inline is inline still,
which decides where a vtable goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lazyck.postbuild.cxx_lexer import STRUCTURE

_TRAP = " __builtin_trap(); "
# Words of a head by which other declarations may depend on the body, or by which it is not a plain function's.
_MATTERS = re.compile(r"\b(?:constexpr|consteval|auto|requires|concept|try|catch|asm)\b|=\s*\[")
_FUNCTION = re.compile(r"\)\s*(?:(?:const|noexcept|override|final|volatile|mutable)\b\s*|&\s*)*$")
_SCOPE = re.compile(r'\b(?:namespace|class|struct|union)\b|\bextern\s*"')
_ATTRIBUTE = re.compile(
    r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)|alignas\s*\([^()]*\)|\[\[.*?\]\]|^#.*$", re.MULTILINE
)


def without_bodies(text: str) -> str:
    """The declarations of `text`, which is preprocessed C or C++; line breaks within bodies are lost.

    It reads brackets and words, no more. Where that misleads it, the text does not compile any more, or says what it
    said before: it changes nothing but what stands between a head that ends like a function's and the closing brace.
    """
    out: list[str] = []
    done = start = depth = 0  # what is written; where the declaration at hand begins; open parentheses
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
                # a body without a statement may be a variable's initializer: void (*f)(int){nullptr};
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
    """Read on to the brace that closes an open one; its index."""
    depth = 1
    for mark in marks:
        kind = text[mark.start()]
        depth += (kind == "{") - (kind == "}")
        if depth == 0:
            return mark.start()
    return len(text)
