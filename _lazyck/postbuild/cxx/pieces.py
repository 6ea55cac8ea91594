"""Splits preprocessed C or C++ into pieces, each of which reaches to where a declaration may end.
Only brackets are counted, so that any text can be split."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from _lazyck.postbuild.cxx.lexer import STRUCTURE


class Piece(NamedTuple):
    """One piece of a text, from `start` up to `end`, which is the index after its last character.

    `ends` says what the last character is: `{` opens a scope, in which other declarations stand,
    and `}` closes one, or what nothing opened. A `block` ends a declaration, and so does `;`. A
    directive is a piece of its own (`#`). What is left at the text's end has an empty `ends`.
    `first` and `last` are the indices of the braces that open the piece's first and last block
    outside of parentheses, or -1. `is_balanced` is whether all brackets match up to here.
    """

    ends: str
    start: int
    first: int
    last: int
    end: int
    is_balanced: bool


def pieces(text: str, opens_scope: Callable[[str], bool], is_whole: Callable[[str, Piece], bool]) -> Iterator[Piece]:
    """Yield the pieces of `text`. `opens_scope` decides about a brace by the declaration's text
    before it. `is_whole` decides whether a piece of `text` that ends with a block is a declaration,
    or goes on. Where brackets do not match, each brace begins anew with parentheses."""
    start, first, last, depth, parens, outer, is_balanced = 0, -1, -1, 0, 0, 0, True
    for mark in STRUCTURE.finditer(text):
        at = mark.start()
        kind, ends = text[at], ""
        if kind == "(":
            parens += 1
            continue
        if kind == ")":
            if parens:
                parens -= 1
            else:
                is_balanced = False
            continue
        if kind == "}":
            if depth > 1:
                depth -= 1
                continue
            if parens != outer:
                parens, is_balanced = outer, False
            if depth == 0:
                ends = kind
            elif parens == 0 and is_whole(text, Piece("block", start, first, last, at + 1, is_balanced)):
                ends = "block"
            depth = outer = 0
        elif depth:
            depth += kind == "{"
        elif kind == "{":
            outer = parens
            if parens == 0:
                first, last = (at if first < 0 else first), at
                ends = kind if opens_scope(text[start:at]) else ""
            depth = 0 if ends else 1
        elif kind == ";":
            ends = "" if parens else kind
        elif kind in "# \t" and not text[start:at].strip():
            ends = "#"
        if ends:
            yield Piece(ends, start, first, last, mark.end(), is_balanced)
            start, first, last = mark.end(), -1, -1
    yield Piece("", start, first, last, len(text), is_balanced and not depth and not parens)
