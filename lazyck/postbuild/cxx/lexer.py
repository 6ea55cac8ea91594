"""Does just enough C++ lexing of text whose macros are expanded: tokens, and the pieces of a text,
each of which reaches to where a declaration may end, by counting brackets alone."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

_LITERAL = r"""R"([^()\\\s]{0,16})\((?s:.*?)\)%s"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"""

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
TOKEN = re.compile(_LITERAL % r"\1" + r"|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.']|)*|::|->|\S")
STRUCTURE = re.compile(_LITERAL % r"\1" + r"|[(){};]|^[ \t]*\#[^\n]*", re.MULTILINE)
_COMMENT = re.compile(_LITERAL % r"\1" + r"|//[^\n]*|/\*(?s:.*?)\*/")
# These words are followed by parentheses without being a function's name.
_ATTRIBUTE = re.compile(
    r"\b(?:__attribute__|__attribute|__declspec|decltype|typeof|__typeof__|__decltype|alignas|_Alignas|noexcept|throw"
    r"|explicit|__launch_bounds__|__align__|__cluster_dims__|__block_size__|__maxnreg__)\s*(?=\()"
)
_BRACKETED = re.compile(r"\[\[.*?\]\]", re.DOTALL)
_PAREN = re.compile(r"[()]")
_BASE_CLAUSE = re.compile(r"(?<!:):(?!:)")
_QUALIFIER = re.compile(r"\b[A-Za-z_]\w*\s*::\s*")
_NO_NAMES = ("class", "struct", "final", "const", "volatile")
_ANGLES = re.compile(r"<[^<>]*>")


def without_comments(text: str) -> str:
    """Return source text with each comment replaced by a blank, its line breaks kept."""
    if "//" not in text and "/*" not in text:
        return text
    return _COMMENT.sub(lambda m: " " + "\n" * m[0].count("\n") if m[0][0] == "/" else m[0], text)


def matching(text: str, at: int) -> int:
    """Return the index after the bracket that closes the `(` or `{` at `at`, or the text's length.
    Braces in literals do not count."""
    depth = 0
    opens, closes, marks = ("(", ")", _PAREN) if text[at] == "(" else ("{", "}", STRUCTURE)
    for m in marks.finditer(text, at):
        depth += (m[0] == opens) - (m[0] == closes)
        if depth == 0:
            return m.end()
    return len(text)


def without_attributes(text: str) -> str:
    """Return a declaration without attributes and other words with parentheses of their own."""
    if "[[" in text:
        text = _BRACKETED.sub(" ", text)
    while m := _ATTRIBUTE.search(text):
        text = text[: m.start()] + " " + text[matching(text, m.end()) :]
    return text


def flat(text: str) -> str:
    """Return `text` without the content of its outermost parentheses."""
    parts, start = [], 0
    while (at := text.find("(", start)) >= 0 and (end := matching(text, at)) > at + 1:
        parts.append(text[start : at + 1])
        start = end - (text[end - 1] == ")")
    return "".join([*parts, text[start:]])


def after_angles(text: str, at: int) -> int:
    """Return the index after the `>` that closes the `<` at `at`, or -1 if none does. Brackets
    within parentheses do not count."""
    depth, parens = 0, 0
    for i in range(at, len(text)):
        c = text[i]
        if c == "(":
            parens += 1
        elif c == ")":
            parens -= 1
        elif parens == 0 and c == "<":
            depth += 1
        elif parens == 0 and c == ">" and text[i - 1] != "-":
            depth -= 1
            if depth == 0:
                return i + 1
    return -1


_TEMPLATE = re.compile(r"\s*template\s*(?=<)")


def template_prefixes(text: str) -> tuple[list[str], str]:
    """Return (`template<...>` prefixes, the rest of the declaration)."""
    found = []
    while m := _TEMPLATE.match(text):
        end = after_angles(text, m.end())
        if end < 0:
            break
        found.append(text[:end].strip())
        text = text[end:]
    return found, text.strip()


def top_level(text: str) -> str:
    """Return what `flat` does, also without what stands in angle brackets."""
    top = flat(text)
    if "operator" in top:
        return top
    while (shorter := _ANGLES.sub(" ", top)) != top:
        top = shorter
    return top


def is_of_variable(head: str) -> bool:
    """Return whether braces after `head`, which follows the word `struct`, are an initializer: if
    it has a `=`, or a name beside the type's, as in ` A table[] = ` and ` n::A value`."""
    top = top_level(_BASE_CLAUSE.split(head)[0])
    return "=" in top or len([w for w in IDENTIFIER.findall(_QUALIFIER.sub("", top)) if w not in _NO_NAMES]) > 1


def declarator(declaration: str) -> tuple[str, str]:
    """Return (name before the parameter list, the parameters) of a function's declaration without
    template prefixes and attributes. Operators, and what is no plain function, have no name."""
    angles, last, previous, hidden = 0, "", "", 0
    for m in TOKEN.finditer(declaration):
        t = m[0]
        if m.start() < hidden:
            continue
        if t == "(" and angles:
            hidden = matching(declaration, m.start())
            continue
        if t == "operator":
            return "", ""
        if t == "<":
            angles += 1
        elif t == ">":
            angles -= 1
        elif angles == 0:
            if t == "(":
                name = last if previous == ">" or previous == last else ""
                return name, declaration[m.end() : matching(declaration, m.start()) - 1]
            if t == "=":
                break
            if IDENTIFIER.match(t):
                last = t
        previous = t
    return "", ""


_POINTER = re.compile(r"\(\s*(?:[\w:<>,\s]*::)?\s*[*&]+\s*(?:const\s+)?([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*\)\s*[(\[]")


def pointer_name(declaration: str) -> str:
    """Return the name of a pointer or reference to a function or an array, or of an array of such,
    or an empty string if something else is declared."""
    m = _POINTER.match(declaration, max(0, declaration.find(f"({declarator(declaration)[1]})")))
    return m[1] if m else ""


_QUALIFIED = re.compile(r"(?:::\s*)?(?:[A-Za-z_]\w*\s*::\s*)*[A-Za-z_]\w*\s*$")


def function_parts(declaration: str) -> tuple[str, str, str] | None:
    """Return (return type, qualified name with template arguments, parameters in parentheses) of a
    plain function's declaration without attributes. Return None for what is not that simple."""
    name, parameters = declarator(declaration)
    end = declaration.rfind(f"({parameters})") if name else -1
    if end <= 0:
        return None
    before = declaration[:end].rstrip()
    depth, at = 0, len(before)
    while at and (depth or before[at - 1] == ">"):
        at -= 1
        depth += {">": 1, "<": -1}.get(before[at], 0)
    m = _QUALIFIED.search(before[:at])
    if m is None or not before[: m.start()].strip():
        return None
    return before[: m.start()].strip(), before[m.start() :].strip(), f"({parameters})"


class Piece(NamedTuple):
    """One piece of a text.

    `ends` says what the last character is: `{` opens a scope, in which other declarations stand,
    and `}` closes one, or what nothing opened. A `block` ends a declaration, and so does `;`. A
    directive is a piece of its own (`#`). What is left at the text's end has an empty `ends`.
    """

    ends: str
    start: int
    first: int  # the index of the brace that opens the piece's first block outside of parentheses, or -1
    last: int  # of the one that opens the last block
    end: int  # the index after the last character
    is_balanced: bool  # whether all brackets match up to here


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


_TRAP = " __builtin_trap(); "
# If a head contains one of these, others may depend on the body, or it is no plain function's.
_MATTERS = re.compile(r"\b(?:constexpr|consteval|auto|requires|concept|try|catch|asm)\b|=\s*\[")
_FUNCTION = re.compile(r"\)\s*(?:(?:const|noexcept|override|final|volatile|mutable)\b\s*|&\s*)*$")
_SCOPE = re.compile(r'\b(?:namespace|class|struct|union)\b|\bextern\s*"')
NOT_OF_HEADS = re.compile(
    r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)|alignas\s*\([^()]*\)|\[\[.*?\]\]|^#.*$", re.MULTILINE
)


def without_bodies(text: str) -> str:
    """Return the declarations of `text`, which is preprocessed C or C++, without the bodies of
    functions: a compiler needs none to tell a blob's symbols. Line breaks within bodies are lost.

    With the headers of torch or CUTLASS, a compiler spends most of its time on these bodies: it
    reads them, and instantiates what they use. A declaration's meaning depends on a body only if
    that is `constexpr` or has a type deduced from it. Such bodies stay. All others become a trap
    rather than vanish, so that an inline function remains inline. This decides where a vtable goes.

    This reads brackets and words only. If they mislead it, the text fails to compile or keeps its
    meaning: it changes only between a head that ends like a function's and the closing brace.
    """
    out: list[str] = []
    done = 0  # up to where text is written
    head, is_function = "", False  # of the last brace

    def opens_scope(before: str) -> bool:
        nonlocal head, is_function
        head = NOT_OF_HEADS.sub("", before)
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
