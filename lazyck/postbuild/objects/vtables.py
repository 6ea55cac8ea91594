"""Finds vtables that an object has because it defines the class's first virtual function."""

import re
from collections.abc import Collection, Iterable, Sequence

from lazyck.postbuild.objects.elf import ElfImage, Symbol

_VTABLE = "_ZTV"
_OF_CLASS = re.compile(r"_ZT[VIST]")
_THUNK = re.compile(r"_ZT(?:c?(?:h|v)n?\d+_(?:n?\d+_)?)+")
_DELETING = "D0Ev"
_MEMBER = re.compile(r"_ZN[rVK]*[RO]?")


def is_of_class(symbol: str) -> bool:
    """Return whether `symbol` is a class's vtable, typeinfo, typeinfo name or VTT."""
    return _OF_CLASS.match(symbol) is not None


def class_of(symbol: str) -> str:
    return "_Z" + symbol[len(_VTABLE) :]


def is_member(function: str, class_name: str) -> bool:
    """Return whether a mangled function, or a thunk to one, is a member of the class."""
    inner, rest = _inside(class_name), _member_part(function)
    return bool(rest) and rest.startswith(inner) and not rest[len(inner) :].startswith("I")


def _inside(class_name: str) -> str:
    """Return a class's mangled name in the form in which its members' names begin with it."""
    inner = class_name[2:]
    return inner[1:-1] if inner.startswith("N") and inner.endswith("E") else inner


def _member_part(function: str) -> str:
    """Return the part of a function's or thunk's name that names a member, or an empty string."""
    thunk = _THUNK.match(function)
    member = _MEMBER.match("_Z" + function[thunk.end() :] if thunk else function)
    return member.string[member.end() :] if member else ""


def of_classes_with(functions: Collection[str], symbols: Iterable[str]) -> frozenset[str]:
    """Return those of `symbols` that are a vtable or typeinfo of a class which has a member among
    `functions`. If `functions` are what objects define and no other file has, each file that uses
    any other class has such symbols itself."""
    classes = {s: class_of(s) for s in symbols if is_of_class(s)}
    inner = {_inside(c) for c in classes.values()}
    lengths = sorted({len(name) for name in inner})
    rests = (rest for rest in map(_member_part, functions) if rest)
    having = {rest[:n] for rest in rests for n in lengths if rest[:n] in inner and rest[n : n + 1] != "I"}
    return frozenset(s for s, c in classes.items() if _inside(c) in having)


def with_key_functions(image: ElfImage, table: Sequence[Symbol]) -> dict[str, list[Symbol]]:
    """Return the vtables that the object alone has, each with the functions that may be the reason.

    A compiler writes a class's vtable where its key function is: the first virtual function that is
    neither pure nor inline. If there is none, or the class is an instance of a template, each
    object that uses the class has a copy. gcc makes both kinds weak, so the binding does not tell.
    But a vtable that names a function which only this object defines has a key function. The vtable
    of an abstract class names no destructor. If only this object defines the destructor, with its
    variant for `delete`, then the destructor is virtual and not inline, so there is a key function.
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
        functions = functions or [f for f in (deleting.get(f"_ZN{_inside(of)}{_DELETING}"),) if f]
        if functions:
            found[s.name] = functions
    return found


def _is_strong(f: Symbol) -> bool:
    return f.type == "FUNC" and f.section != 0 and f.binding == "GLOBAL"
