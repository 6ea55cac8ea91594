"""Finds the templates that a text instantiates explicitly. The answer may hold too many."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lazyck.postbuild.cxx.lexer import declarator, top_level, without_attributes
from lazyck.postbuild.cxx.mangled import template_of

_EXPLICIT = re.compile(r"template(?<![\w:.>]template)\b(?!\s*<)([^;]*);")
_OPERATOR = re.compile(r"\boperator\b")
_OF_CLASS = re.compile(r"\s*(?:class|struct|union)\b")
_BEFORE_ARGUMENTS = re.compile(r"([A-Za-z_]\w*)\s*<")


@dataclass(frozen=True)
class Instances:
    """Holds names of templates: those of classes, functions and variables that a text instantiates,
    or of which it instantiates members. `with_data` are those of classes and variables."""

    templates: frozenset[str] = frozenset()
    with_data: frozenset[str] = frozenset()
    has_operators: bool = False  # some are operators or conversions, whose mangled names are not followed

    def holds(self, symbol: str) -> bool:
        """Return whether a mangled name may be that of a function that the text instantiates."""
        name = template_of(symbol).removeprefix("__device_stub__") if self.templates or self.has_operators else ""
        return name in self.templates or (self.has_operators and not name and "I" in symbol)

    def holds_data(self, symbol: str) -> bool:
        """Return whether a mangled name may be that of a variable or vtable of an instance."""
        return bool(self.with_data) and template_of(symbol) in self.with_data

    def __or__(self, other: "Instances") -> "Instances":
        has_operators = self.has_operators or other.has_operators
        return Instances(self.templates | other.templates, self.with_data | other.with_data, has_operators)


def instances(text: str, *, are_declared: bool = False) -> Instances:
    """Return what `text`, without macros, instantiates, or what it only declares (`extern`)."""
    declarations = list(_explicit(text, are_declared=are_declared))
    found = list(map(_name, declarations))
    has_operators = any(map(_OPERATOR.search, declarations))
    named = frozenset(name for name, _ in found if name)
    with_data = named & frozenset(name for name, is_function in found if not is_function)
    return Instances(named, with_data, has_operators)


def count(text: str) -> int:
    """Return how many explicit instantiations `text` has."""
    return sum(1 for _ in _explicit(text, are_declared=False))


def _explicit(text: str, *, are_declared: bool) -> Iterator[str]:
    for m in _EXPLICIT.finditer(text):
        if (text[max(0, m.start() - 80) : m.start()].split()[-1:] == ["extern"]) == are_declared:
            yield m[1]


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
