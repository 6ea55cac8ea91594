"""Tells by which identifiers a source text can refer to a mangled symbol. It follows the Itanium
C++ ABI only as far as needed."""

import re

_PREFIX = re.compile(r"_Z(?:T[VIST]|GV)?(?:N[rVK]*[RO]?)?")
_NUMBER = re.compile(r"\d+")
_THUNK = re.compile(r"T(?:h|v)n?\d+_(?:n?\d+_)?")
_LITERAL = re.compile(r"L[a-z]n?\d*E")
_VALUE = re.compile(r"n?\d*E")
_KNOWN_BY_PATTERN = {
    "S": re.compile(r"S(?:[tabsiod]|[0-9A-Z]*_)"),  # a substitution
    "T": re.compile(r"T[0-9A-Z]*_"),  # a template's parameter
    "D": re.compile(r"DF\d+[_bx]|Dv\d+_|D[a-su-z]"),
    "A": re.compile(r"A\d*_"),
}
_WORD = re.compile(r"\w+")
_STANDARD = re.compile(r"_Z(?:T[VISTC]|GV|T[hv]n?\d+_(?:n?\d+_)?)?N?[VKRO]*(?:S[tabsiod]|9__gnu_cxx|10__cxxabiv1)")
_FREE_OPERATOR = re.compile(r"_Z[a-z][a-zA-Z]")
_UNNAMED = re.compile(r"\d_GLOBAL__N__")


class _Unreadable(Exception):
    """Signals a name whose shape is not followed here."""


def identifiers(symbol: str) -> frozenset[str]:
    """Return identifiers of which one stands in every source text that uses `symbol` by name.

    That is its last name or, if it has none (constructors, operators), its class's name. A name
    that is not understood gives all the identifiers that it holds.
    """
    if not symbol.startswith("_Z"):
        return frozenset({symbol})
    return frozenset(_parsed(symbol)[0][-1:] or _all_names(symbol))


def spellings(symbol: str) -> tuple[frozenset[str], ...]:
    """Return the ways in which a text can name `symbol`. One of these sets of identifiers stands in
    every text that declares the symbol: its name and those of its classes and namespaces. The set
    is empty for what compilers use without a declaration, such as `operator new`."""
    if not symbol.startswith("_Z"):
        return (frozenset({symbol}),)
    if _FREE_OPERATOR.match(symbol):
        return (frozenset(),)
    names = frozenset(n for n in _parsed(symbol)[0] if not n.startswith("_GLOBAL__N_"))
    return (names,) if names else tuple(frozenset({n}) for n in _all_names(symbol)) or (frozenset(),)


def is_private(symbol: str) -> bool:
    """Return whether `symbol` stands in an unnamed namespace, so that no other file can name it.
    nvcc makes some such names unique and gives them to the linker."""
    return "12_GLOBAL__N_1" in symbol or _UNNAMED.search(symbol) is not None


def is_of_the_standard_library(symbol: str) -> bool:
    """Return whether `symbol` is of namespace `std` or of the compiler's support library."""
    return _STANDARD.match(symbol) is not None


def last_name(symbol: str) -> str:
    """Return the name of a function without scopes, arguments and parameters, mangled or not."""
    return (_parsed(symbol)[0] or [symbol])[-1]


def template_of(symbol: str) -> str:
    """Return the name of the outermost template of which `symbol` (a function, a variable, or a
    class's vtable) is an instance, or a member of an instance. Return an empty string if there is
    none, or if the name is not followed here (static variables of functions are not)."""
    m = _PREFIX.match(symbol)
    if m is None:
        return ""
    i, last = m.end(), ""
    try:
        while not (last and symbol[i : i + 1] == "I"):
            if symbol[i].isdigit():
                last, i = _source_name(symbol, i)
            elif symbol[i] in "SB":
                i = _past_one(symbol, i)
            elif last and symbol[i] == "C" and symbol[i + 1].isdigit():
                i += 2  # a constructor, which has its class's name
            else:
                return ""
    except (_Unreadable, IndexError):
        return ""
    return last


def _parsed(symbol: str) -> tuple[list[str], bool]:
    """Return `_names` of a symbol. The list is empty for what is not followed here."""
    try:
        return _names(symbol, _start(symbol)) if symbol.startswith("_Z") else ([], False)
    except (_Unreadable, IndexError):
        return [], False


def _start(symbol: str) -> int:
    if symbol[2] not in "TG":
        return 2
    if thunk := _THUNK.match(symbol, 2):
        return thunk.end()
    if symbol[2:4] in ("TV", "TI", "TS", "TT", "GV", "GR"):
        return 4
    raise _Unreadable


def _names(s: str, i: int) -> tuple[list[str], bool]:
    """Return the scopes of a name and the name, from outermost to innermost, without constructors,
    destructors and operators. Return also whether it is a constructor or destructor."""
    is_nested = s[i] == "N"
    if is_nested:
        i += 1
        while s[i] in "rVK":
            i += 1
        if s[i] in "RO":
            i += 1
    found: list[str] = []
    is_structor = False
    while True:
        c = s[i]
        if c.isdigit():
            name, i = _source_name(s, i)
            found.append(name)
            is_structor = False
        elif c in "STIB":
            i = _past_one(s, i)
        elif c == "L":
            i += 1
        elif c in "CD" and is_nested and s[i + 1] in "012345":
            i += 2
            is_structor = True
        elif is_nested and (c == "E" or (c.islower() and found)):  # an operator is known by its class
            break
        else:
            raise _Unreadable
        if not is_nested and found and s[i : i + 1] not in ("B", "I"):
            break
    if not found:
        raise _Unreadable
    return found, is_structor


def _take(pattern: re.Pattern[str], s: str, i: int) -> int:
    m = pattern.match(s, i)
    if m is None:
        raise _Unreadable
    return m.end()


def _source_name(s: str, i: int) -> tuple[str, int]:
    m = _NUMBER.match(s, i)
    if m is None or m.end() + int(m[0]) > len(s):
        raise _Unreadable
    end = m.end() + int(m[0])
    return s[m.end() : end], end


def _past_one(s: str, i: int) -> int:
    c = s[i]
    if c.isdigit():
        return _source_name(s, i)[1]
    if c == "L":
        m = _LITERAL.match(s, i)
        return m.end() if m else _take(_VALUE, s, _past_one(s, i + 1))
    if c in "NIJF":  # a list, which an `E` ends
        i += 1
        while s[i] != "E":
            i = _past_one(s, i)
        return i + 1
    if c in _KNOWN_BY_PATTERN:
        return _take(_KNOWN_BY_PATTERN[c], s, i)
    if c in "UuB":
        return _source_name(s, i + 1)[1]
    if c in "XZ_":
        raise _Unreadable
    return i + 1


def _all_names(s: str) -> set[str]:
    found = set()
    for m in _NUMBER.finditer(s):
        for start in range(m.start(), m.end()):
            size = int(s[start : m.end()])
            name = s[m.end() : m.end() + size]
            if 0 < size == len(name) and not name[0].isdigit() and _WORD.fullmatch(name):
                found.add(name)
    return found
