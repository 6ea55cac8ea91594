"""Removes the bodies of functions from preprocessed headers: a compiler needs none to tell a blob's
symbols.

With the headers of torch or CUTLASS, a compiler spends most of its time on these bodies: it reads
them, and instantiates what they use. A declaration's meaning depends on a body only if that is
`constexpr` or has a type deduced from it. Such bodies stay. All others become a trap rather than
vanish, so that an inline function remains inline. This decides where a vtable goes.
"""

import re

from _lazyck.postbuild.cxx.pieces import pieces

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
    done = 0  # up to where text is written
    head, is_function = "", False  # of the last brace

    def opens_scope(before: str) -> bool:
        nonlocal head, is_function
        head = _ATTRIBUTE.sub("", before)
        is_function = _FUNCTION.search(head) is not None
        return not is_function and _SCOPE.search(head) is not None

    # After the braces of an enumeration or an initializer the declaration goes on.
    for piece in pieces(text, opens_scope, lambda _text, _piece: is_function):
        # A body without a statement may be a variable's initializer: void (*f)(int){nullptr};
        has_body = piece.ends == "block" and text.find(";", piece.last, piece.end) > 0
        if has_body and not _MATTERS.search(head):
            out += [text[done : piece.last + 1], _TRAP]
            done = piece.end - 1
    out.append(text[done:])
    return "".join(out)
