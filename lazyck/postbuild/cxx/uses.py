"""Tells which names the code of a preprocessed text uses, declaration by declaration. The answer
needs no types and may hold too many names. A mere declaration does not use its name. Whatever a
function's body, an initializer or a type mentions is used. Finds what it instantiates, too."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

from lazyck.postbuild.cxx.lexer import (
    IDENTIFIER,
    Piece,
    declarator,
    flat,
    is_of_variable,
    pieces,
    template_prefixes,
    top_level,
    without_attributes,
)
from lazyck.postbuild.cxx.mangled import template_of

_SCOPE = re.compile(r'\s*(?:(?:inline\s+)?namespace\b[^=]*|extern\s*"C(?:\+\+)?"\s*)$')
_CLASS = re.compile(r"(?:\w+\s+)*?(?:struct|class|union)\b")
_ACCESS = re.compile(r"^(?:\s*(?:public|protected|private)\s*:(?!:))+")
_WIDTH = re.compile(r"\[|(?<!:):(?!:)")  # of an array, of a bit field
_BASES = re.compile(r"(?<!:):(?!:)")
_OPERATOR = re.compile(r"\boperator\b")
_ASSIGN = re.compile(r"(?<![=!<>])=(?!=)")
_QUALIFIED = re.compile(r"(?:[A-Za-z_]\w*\s*(?:<[^;{}()]*>\s*)?::\s*)*~?\s*[A-Za-z_]\w*\s*$")
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_GOES_ON = (",", ";", ")", "(", ".", "=", "{")
_WORDS = re.compile(
    r"alignas|auto|bool|char|class|const|constexpr|double|enum|explicit|extern|float|friend|inline|int|long|namespace"
    r"|noexcept|operator|private|protected|public|return|short|signed|sizeof|static|struct|template|this|typedef|typename"
    r"|union|unsigned|using|virtual|void|volatile|std|__attribute__|__inline__|__host__|__device__|__forceinline__"
)


@dataclass(frozen=True)
class Code:
    """Holds one declaration: its text up to the first brace, all of it, and its classes."""

    head: str
    text: str
    owners: tuple[str, ...] = ()

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """Return all identifiers. Those in strings count only if assembler might read them."""
        text = self.text if "asm" in self.text or '"' not in self.text else _STRING.sub('""', self.text)
        return frozenset(IDENTIFIER.findall(text))

    @cached_property
    def _declarator(self) -> str:
        """Return the declared name with its scopes, or "" for operators and what has no name."""
        before = _ASSIGN.split(without_attributes(_ACCESS.sub("", self.head)), maxsplit=1)[0]
        rest = template_prefixes(before)[1]
        if _OPERATOR.search(rest):
            return ""
        paren = flat(rest).find("(")
        found = _QUALIFIED.search(_without_arguments(rest[:paren] if paren >= 0 else _WIDTH.split(rest)[0]))
        return found[0] if found else ""

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names by which other code can reach the declaration."""
        found = frozenset(IDENTIFIER.findall(self._declarator)).union(self.owners)
        if not found:  # a free operator is reached through its operands
            found = frozenset(IDENTIFIER.findall(self.head))
        return frozenset(n for n in found if not _WORDS.fullmatch(n))

    def uses(self, names: frozenset[str]) -> frozenset[str]:
        found = self.mentioned & names
        own = IDENTIFIER.findall(self._declarator)[-1:] if found else []
        if own and own[0] in found and len(re.findall(rf"\b{own[0]}\b", self.text)) == 1:
            return found - {own[0]}
        return found


def _without_arguments(text: str) -> str:
    """Return `text` without what stands between angle brackets at its end: `f<int, 3>` names f."""
    if ">" not in text:
        return text
    return top_level(text.rstrip())


def declarations(text: str) -> Iterator[Code]:
    """Yield the declarations of any `text`, with members of classes one by one."""
    scopes: list[tuple[str, ...]] = [()]
    inner: tuple[str, ...] | None = None

    def opens_scope(before: str) -> bool:
        nonlocal inner
        inner = _scope_of(before)
        return inner is not None

    for piece in pieces(text, opens_scope, _is_whole):
        if piece.ends == "{":
            head = text[piece.start : piece.last]
            if inner:
                yield Code(head, head, scopes[-1])
            scopes.append(scopes[-1] + (inner or ()))
        elif piece.ends == "}" and len(scopes) > 1:
            scopes.pop()
        elif piece.ends in ("block", ";", ""):
            statement = text[piece.start : piece.end - (piece.ends == ";")]
            if statement.strip():
                head = statement if piece.first < 0 else text[piece.start : piece.first]
                yield Code(head, statement, scopes[-1])


def _is_whole(text: str, piece: Piece) -> bool:
    """Return whether a declaration ends with the block that `piece` ends with."""
    rest = text[piece.end : piece.end + 80].lstrip()
    head = text[piece.start : piece.first]
    goes_on = rest.startswith(("catch", *_GOES_ON)) or re.search(r"=\s*$", head)
    return not goes_on or (rest.startswith(";") and _is_function(head))


def _scope_of(head: str) -> tuple[str, ...] | None:
    """Return the names that a scope adds to those by which its members are reached. Return None for
    braces that open no scope, such as those of `struct A table[] = {` and `struct A value{`."""
    if _SCOPE.match(head):
        return ()
    if "class" not in head and "struct" not in head and "union" not in head:
        return None
    plain = without_attributes(template_prefixes(head)[1])
    m = _CLASS.match(plain)
    if not m or "(" in top_level(_BASES.split(plain)[0]) or is_of_variable(plain[m.end() :]):
        return None
    words = IDENTIFIER.findall(_without_arguments(_BASES.split(plain[m.end() :])[0]))
    named = [w for w in words if w != "final"]
    return (named[-1],) if named else ("",)


def _is_function(head: str) -> bool:
    return "(" in top_level(without_attributes(head)) and not _ASSIGN.search(top_level(without_attributes(head)))


def reaching(code: Sequence[Code], marks: Mapping[str, int]) -> dict[str, int]:
    """Return the names by which code reaches a name in `marks`, directly or through other
    declarations in `code`. Each has the marks (bits) of all that it reaches."""
    found = dict(marks)
    every = reduce(or_, found.values(), 0)
    fresh, left = frozenset(found), list(code)
    while fresh:
        added: set[str] = set()
        kept = []
        for c in left:
            reached = reduce(or_, (found[n] for n in c.uses(fresh)), 0)
            for n in c.names if reached else ():
                before = found.get(n, 0)
                if n and before | reached != before:
                    found[n] = before | reached
                    added.add(n)
            if reached != every:
                kept.append(c)
        left, fresh = kept, frozenset(added)
    return found


# -- explicit instances: rather too many ----------------------------------------------------------

_EXPLICIT = re.compile(r"template(?<![\w:.>]template)\b(?!\s*<)([^;{}]*);")
_OF_CLASS = re.compile(r"\s*(?:class|struct|union)\b")
_BEFORE_ARGUMENTS = re.compile(r"([A-Za-z_]\w*)\s*<")


@dataclass(frozen=True)
class Instances:
    """Holds names of templates: those of classes, functions and variables that a text instantiates,
    or of which it instantiates members. `with_data` are those of classes and variables."""

    templates: frozenset[str] = frozenset()
    with_data: frozenset[str] = frozenset()

    def holds(self, symbol: str) -> bool:
        """Return whether a mangled name may be that of a function that the text instantiates."""
        return bool(self.templates) and template_of(symbol).removeprefix("__device_stub__") in self.templates

    def holds_data(self, symbol: str) -> bool:
        """Return whether a mangled name may be that of a variable or vtable of an instance."""
        return bool(self.with_data) and template_of(symbol) in self.with_data


def instances(text: str, *, are_declared: bool = False) -> Instances:
    """Return what `text`, without macros, instantiates, or what it only declares (`extern`)."""
    explicit = ((m[1], text[max(0, m.start() - 80) : m.start()].split()[-1:]) for m in _EXPLICIT.finditer(text))
    found = [_name(declaration) for declaration, before in explicit if (before == ["extern"]) == are_declared]
    named = frozenset(name for name, _ in found if name)
    return Instances(named, named & frozenset(name for name, is_function in found if not is_function))


def _name(declaration: str) -> tuple[str, bool]:
    """Return the first template that the name of an explicit instantiation goes through, `Outer` of
    `Outer<int>::Inner`. Return also whether it is a function that is instantiated."""
    plain = re.sub(r"\s*::\s*", "::", without_attributes(declaration).partition("operator")[0]).strip()
    is_function = not _OF_CLASS.match(plain) and ("operator" in declaration or "(" in top_level(plain))
    name = ""
    if is_function and "(" in plain:
        name, parameters = declarator(plain)
        plain = plain[: plain.rfind(f"({parameters})")] if name else plain
    # In `std::vector<int> make<3>` the last word has the name: angle brackets may hold blanks.
    depth, start = 0, 0
    for i, c in enumerate(plain):
        depth += (c == "<") - (c == ">")
        if depth == 0 and c in " \n\t*&>" and plain[i + 1 : i + 2] not in ("<", ":", ""):
            start = i + 1
    m = _BEFORE_ARGUMENTS.search(plain, start)
    return (m[1] if m else name), is_function  # without angle brackets, its arguments are deduced
