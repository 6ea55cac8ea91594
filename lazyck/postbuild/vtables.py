"""Which vtables an object has because a class's first virtual function is defined in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lazyck.postbuild.elf import ElfImage, Symbol

_VTABLE = "_ZTV"
_OF_CLASS = re.compile(r"_ZT[VIST]")
_THUNK = re.compile(r"_ZT(?:c?(?:h|v)n?\d+_(?:n?\d+_)?)+")
_DELETING = "D0Ev"
_MEMBER = re.compile(r"_ZN[rVK]*[RO]?")


def is_of_class(symbol: str) -> bool:
    """Whether `symbol` is a class's vtable, typeinfo, typeinfo name or VTT."""
    return _OF_CLASS.match(symbol) is not None


def class_of(symbol: str) -> str:
    """The mangled name of the class to which a vtable, typeinfo or VTT belongs; demangled, it is the class's."""
    return "_Z" + symbol[len(_VTABLE) :]


def is_member(function: str, class_name: str) -> bool:
    """Whether the mangled name of a function, or of a thunk to it, is that of a member of the class."""
    thunk = _THUNK.match(function)
    member = _MEMBER.match("_Z" + function[thunk.end() :] if thunk else function)
    if member is None:
        return False
    inner = class_name[2:]
    if inner.startswith("N") and inner.endswith("E"):
        inner = inner[1:-1]
    rest = member.string[member.end() :]
    return rest.startswith(inner) and not rest[len(inner) :].startswith("I")


def with_key_functions(image: ElfImage, table: Sequence[Symbol]) -> dict[str, list[Symbol]]:
    """The object's vtables that no other object of the program has, each with the functions that may be the reason.

    A compiler writes a class's vtable where its key function is, the first virtual function that is neither pure nor
    inline; where there is none, or of a template's instance, each object that uses the class has a copy. gcc makes
    both weak, so the binding does not tell: a vtable that names a function which only this object defines does. That of
    an abstract class names no destructor; one that only this object defines, with its variant for `delete`, is virtual
    and not inline, so there is a key function.
    """
    found: dict[str, list[Symbol]] = {}
    deleting = {f.name: f for f in table if f.name.endswith(_DELETING) and _is_strong(f)}
    references: dict[int, list[tuple[int, int]]] = {}
    for s in table:
        if s.binding == "LOCAL" or not 0 < s.section < len(image.sections) or not s.name.startswith(_VTABLE):
            continue
        if s.section not in references:
            references[s.section] = [(at, index) for at, index, _ in image.relocations(s.section)]
        of = class_of(s.name)
        named = {index for at, index in references[s.section] if s.value <= at < s.value + s.size}
        functions = [f for f in map(table.__getitem__, sorted(named)) if _is_strong(f) and is_member(f.name, of)]
        functions = functions or [f for f in (deleting.get(_destructor(of)),) if f]
        if functions:
            found[s.name] = functions
    return found


def _destructor(class_name: str) -> str:
    """The mangled name of a class's destructor, in the variant that deletes."""
    inner = class_name[2:]
    return f"_ZN{inner[1:-1] if inner.startswith('N') else inner}{_DELETING}"


def _is_strong(f: Symbol) -> bool:
    return f.type == "FUNC" and f.section != 0 and f.binding == "GLOBAL"
