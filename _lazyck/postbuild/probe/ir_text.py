"""Reads what a module of textual LLVM IR defines. Top-level entities are read exactly, function
bodies only for the names in them.

The text is split into LLVM's own tokens (strings know no escape of `"`, comments run to the line's
end), never by lines: a module may be written in one line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["function", "variable", "alias", "ifunc"]

_LINKAGE_WORDS = (
    "private internal available_externally linkonce linkonce_odr weak weak_odr common appending extern_weak external"
)
_LINKAGES = frozenset(_LINKAGE_WORDS.split())
_NOISE = r";[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(
    rf'(?P<skip>\s+|{_NOISE})|(?P<at>@(?:"[^"]*"|[-\w.$]+))|(?P<sigil>[%!#^$](?:"[^"]*"|[-\w.$\\]*))'
    r'|(?P<text>"[^"]*")|(?P<word>[-\w.$]+)|(?P<mark>.)',
    re.ASCII | re.DOTALL,
)
_GROUP_ENDS = {"(": ")", "[": "]", "{": "}"}
_GROUPS = {
    opener: re.compile(rf'{re.escape(opener)}|{re.escape(closer)}|"[^"]*"|{_NOISE}', re.DOTALL)
    for opener, closer in _GROUP_ENDS.items()
}
_NAME = re.compile(rf'(?P<at>@(?:"[^"]*"|[-\w.$]+))|"[^"]*"|{_NOISE}', re.ASCII | re.DOTALL)
_EQUALS = re.compile(rf"(?:\s+|{_NOISE})*=", re.DOTALL)
_STARTS = frozenset({"define", "declare", "module", "uselistorder", "uselistorder_bb"})
_KINDS: dict[str, Kind] = {"global": "variable", "constant": "variable", "alias": "alias", "ifunc": "ifunc"}


class Unreadable(Exception):
    """Signals that the text is not LLVM IR as this reader knows it."""


@dataclass(frozen=True)
class Entity:
    """Describes a function, variable, alias or ifunc of a module. `names` are those that its body,
    initializer or aliasee mentions. `symbol` is the name in the object file."""

    symbol: str
    kind: Kind
    is_defined: bool
    linkage: str
    is_hidden: bool
    is_dso_local: bool
    is_local_exec: bool
    names: tuple[str, ...]


@dataclass
class _Open:
    """Holds an entity while it is being read."""

    keyword: str
    at: str = ""
    words: set[str] = field(default_factory=set)
    begin: int = 0  # where text begins that may mention names


@dataclass(frozen=True)
class Module:
    """Holds all entities by their names in the IR, and assembler outside of functions."""

    entities: dict[str, Entity]
    assembler: tuple[str, ...]

    def base(self, entity: Entity) -> Entity:
        """Return what an alias finally stands for. Raises `Unreadable`."""
        seen = 0
        while entity.kind == "alias":
            seen += 1
            known = [self.entities[n] for n in entity.names if n in self.entities]
            if not known or seen > len(self.entities):
                raise Unreadable(f"the alias {entity.symbol} leads nowhere")
            entity = known[0]
        return entity


def read_module(text: str) -> Module:
    """Return the entities of `text`. Raises `Unreadable`."""
    entities: dict[str, Entity] = {}
    assembler: list[str] = []
    for opened, end in _entities(text):
        if opened.keyword == "module":
            strings = re.findall(r'"[^"]*"', text[opened.begin : end])
            assembler += (s.strip() for line in strings for s in re.split(r"[\n;]", plain_name(f"@{line}")))
        elif opened.at:
            entities[plain_name(opened.at)] = _close(opened, text, end)
    return Module(entities, tuple(filter(None, assembler)))


def plain_name(word: str) -> str:
    r"""Return `@name` or `@"na\6De"` without the sign, quotes and escapes."""
    name = word[1:]
    if not name.startswith('"'):
        return name
    raw = name[1:-1].encode("utf-8", "surrogateescape")
    raw = re.sub(rb"\\(\\|[0-9A-Fa-f]{2})", lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 16)]), raw)
    return raw.decode("utf-8", "surrogateescape")


def symbol_of(name: str) -> str:
    r"""Return the symbol of a named global. `\01` says "exactly this", which on ELF all names mean
    anyway."""
    return name.removeprefix("\x01")


def _entities(text: str) -> Iterator[tuple[_Open, int]]:
    """Yield each entity with the position where it ends, which is where the next one begins."""
    opened: _Open | None = None
    at, size = 0, len(text)
    while at < size:
        token = _TOKEN.match(text, at)
        if token is None:
            raise Unreadable("a character that is none of LLVM IR's")
        begin, at = at, token.end()
        kind, word = token.lastgroup, token[0]
        if kind == "skip":
            continue
        is_named = kind in ("at", "sigil") and _EQUALS.match(text, at) is not None
        if is_named or (kind == "word" and word in _STARTS):
            if opened is not None:
                yield opened, begin
            opened = _Open("" if is_named else word, word if is_named and kind == "at" else "", begin=at)
        elif kind == "mark" and word in _GROUP_ENDS:
            inside, at = at, _group_end(text, at, word)
            if opened is not None and "localexec" in text[inside:at] and word == "(" and "thread_local" in opened.words:
                opened.words.add("localexec")
        elif kind == "mark" and word in ")]}":
            raise Unreadable(f"a {word!r} too many")
        elif opened is not None:
            _take(opened, kind or "", word, at)
    if opened is not None:
        yield opened, size


def _take(opened: _Open, kind: str, word: str, at: int) -> None:
    """Read one more token of an entity's head."""
    if opened.keyword in ("define", "declare"):
        if kind == "at" and not opened.at:
            opened.at, opened.begin = word, at
        elif kind == "word" and not opened.at:
            opened.words.add(word)
    elif opened.at and not opened.keyword and kind == "word":
        if word in _KINDS:
            opened.keyword, opened.begin = word, at
        else:
            opened.words.add(word)


def _group_end(text: str, at: int, opener: str) -> int:
    """Return where the bracket opened before `at` is closed. Others balance within."""
    depth = 1
    closer = _GROUP_ENDS[opener]
    for found in _GROUPS[opener].finditer(text, at):
        if found[0] == opener:
            depth += 1
        elif found[0] == closer:
            depth -= 1
            if depth == 0:
                return found.end()
    raise Unreadable(f"a {opener!r} that nothing closes")


def _close(opened: _Open, text: str, end: int) -> Entity:
    is_function = opened.keyword in ("define", "declare")
    if not is_function and opened.keyword not in _KINDS:
        raise Unreadable(f"{opened.at} is neither variable nor alias")
    kind: Kind = "function" if is_function else _KINDS[opened.keyword]
    words = opened.words
    linkage = next(iter(words & _LINKAGES), "")
    # `external` says that the definition is elsewhere only for a variable.
    is_elsewhere = linkage == "extern_weak" or (kind == "variable" and linkage == "external")
    found = dict.fromkeys(plain_name(m["at"]) for m in _NAME.finditer(text, opened.begin, end) if m["at"])
    return Entity(
        symbol=symbol_of(plain_name(opened.at)),
        kind=kind,
        is_defined=opened.keyword != "declare" and not is_elsewhere,
        linkage=linkage or "external",
        is_hidden="hidden" in words,
        is_dso_local="dso_local" in words,
        is_local_exec="localexec" in words,
        names=tuple(found),
    )
