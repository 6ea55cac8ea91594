"""Probes blobs of LLVM IR: what they define stands in their text. Bitcode is turned into text
first, many files at a time, by the compiler that the project compiles it with.

Top-level entities are read exactly, function bodies only for the names in them. The text is split
into LLVM's own tokens (strings know no escape of `"`, comments run to the line's end), never by
lines: a module may be written in one line.
"""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lazyck import proc
from lazyck.postbuild.objects import elf
from lazyck.postbuild.probe.group import Answer, Group
from lazyck.postbuild.probe.one_group import Answers, Doubt
from lazyck.postbuild.probe.preprocess import read_source, what_always_binds
from lazyck.postbuild.probe.real_object import HARMLESS, START_UP, defines
from lazyck.postbuild.reasons import Reason, ReasonKind

Entry = Literal["function", "variable", "alias", "ifunc"]

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
_KINDS: dict[str, Entry] = {"global": "variable", "constant": "variable", "alias": "alias", "ifunc": "ifunc"}


class Unreadable(Exception):
    """Signals that the text is not LLVM IR as this reader knows it."""


@dataclass(frozen=True)
class Entity:
    """Describes a function, variable, alias or ifunc of a module."""

    symbol: str  # the name in the object file
    kind: Entry
    is_defined: bool
    linkage: str
    is_hidden: bool
    is_dso_local: bool
    is_local_exec: bool
    names: tuple[str, ...]  # those that its body, initializer or aliasee mentions


@dataclass
class _Open:
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
    kind: Entry = "function" if is_function else _KINDS[opened.keyword]
    words = opened.words
    linkage = next(iter(words & _LINKAGES), "")
    # `external` says that the definition is elsewhere only for a variable.
    is_elsewhere = linkage == "extern_weak" or (kind == "variable" and linkage == "external")
    found = dict.fromkeys(plain_name(m["at"]) for m in _NAME.finditer(text, opened.begin, end) if m["at"])
    return Entity(
        symbol=plain_name(opened.at).removeprefix("\x01"),  # "exactly this", which on ELF all names mean
        kind=kind,
        is_defined=opened.keyword != "declare" and not is_elsewhere,
        linkage=linkage or "external",
        is_hidden="hidden" in words,
        is_dso_local="dso_local" in words,
        is_local_exec="localexec" in words,
        names=tuple(found),
    )


_BATCH = 64  # files for one start of a compiler
_RUN_AT_LOAD = ("llvm.global_ctors", "llvm.global_dtors")
# Functions of these linkages are not in an object by name, or only if the module uses them.
_LOCAL = frozenset({"private", "internal", "available_externally"})
_DISCARDABLE = frozenset({"linkonce", "linkonce_odr"})
# llvm.exp.f32 becomes expf.
_LIBM = re.compile(r"llvm\.(\w+)\.(f32|f64|f80|f128)")
_GLOBL = re.compile(r"\.globa?l\s+([\w.$]+)", re.ASCII)
_LIBM_NAMES = {"maxnum": "fmax", "minnum": "fmin"}
_LIBM_SUFFIX = {"f32": "f", "f64": "", "f80": "l", "f128": "l"}
_WEAK = frozenset({"weak", "weak_odr"})  # always there; gives way to another definition


def probe_ir(group: Group, work: Path, jobs: int) -> Answers:
    """Probe all sources of `group`, `jobs` compilers at a time. Writes below `work` only."""
    work.mkdir(parents=True, exist_ok=True)
    answers = Answers(group, work, headers=dict.fromkeys(group.sources, frozenset()), clusters=[list(group.sources)])
    bitcode = [s for s in group.sources if elf.kind(s) == "bitcode"]
    texts = dict.fromkeys(set(group.sources) - set(bitcode), "") | _disassembled(group, work, bitcode, jobs)
    for source in group.sources:
        if source not in texts:
            answers.doubts[source] = Doubt("its bitcode cannot be turned into text")
            continue
        try:
            text = read_source(texts[source] or source)
            module = read_module(text)
            found = functions(module)
            reason = eager_reason(module) or next(iter(what_always_binds(text)), None)
            if not reason and found.unreachable and not found.symbols:
                reason = Reason(ReasonKind.IR_UNREACHABLE, ", ".join(found.unreachable[:3]))
            answers.found[source] = Answer(eager=reason) if reason else found
        except Unreadable as e:
            answers.doubts[source] = Doubt(f"its LLVM IR cannot be read: {e}")
    return answers


def _disassembled(group: Group, work: Path, sources: Sequence[str], jobs: int) -> dict[str, str]:
    """Map each source to the file with its text. A source that the compiler refuses is missing."""
    names = {source: f"ir{i}" for i, source in enumerate(sources)}
    for source, name in names.items():
        (work / f"{name}.bc").symlink_to(source)
    # There are at least as many batches as compilers that may run.
    size = max(1, min(_BATCH, -(-len(sources) // max(1, jobs))))
    batches = [sources[i : i + size] for i in range(0, len(sources), size)]

    def one(batch: Sequence[str]) -> None:
        for command in group.toolchain.disassemblers(group.base):
            left = [names[s] for s in batch if not (work / f"{names[s]}.ll").exists()]
            if left:
                proc.run([*command, *(f"{name}.bc" for name in left)], cwd=work, env=group.env)

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        list(pool.map(one, batches))
    made = {source: str(work / f"{name}.ll") for source, name in names.items()}
    return {source: path for source, path in made.items() if os.path.exists(path)}


def functions(module: Module) -> Answer:
    """Return the functions of the module's object, with those apart that no stub can be."""
    symbols: list[str] = []
    unreachable: list[str] = []
    for name, e in module.entities.items():
        if not e.is_defined or e.linkage in _LOCAL or name.isdigit() or module.base(e).kind == "variable":
            continue
        out_of_reach = e.is_hidden or e.linkage in _DISCARDABLE
        (unreachable if out_of_reach else symbols).append(e.symbol)
    merged = frozenset(e.symbol for e in module.entities.values() if e.linkage in _WEAK).intersection(symbols)
    return Answer(tuple(symbols), tuple(unreachable), needs=_needs(module), merged=merged)


def _needs(module: Module) -> frozenset[str]:
    """Return what the module's object may leave undefined: what definitions mention."""
    mentioned = {n for e in module.entities.values() if e.is_defined for n in e.names}
    elsewhere = [e.symbol for n, e in module.entities.items() if not e.is_defined and n in mentioned]

    def libm_name(m: re.Match[str]) -> str:
        return _LIBM_NAMES.get(m[1], m[1]) + _LIBM_SUFFIX[m[2]]

    # An intrinsic calls nothing, or ends in a function of libm.
    by_ir = {_LIBM.sub(libm_name, s) for s in elsewhere if not s.startswith("llvm.") or _LIBM.fullmatch(s)}
    return frozenset(by_ir.union(_only_wanted(module)))


def _only_wanted(module: Module) -> list[str]:
    """Return the symbols that assembler outside of functions declares and the module does not
    define: undefined symbols of its object. The `<iostream>` of GCC 13 and newer has one."""
    own = {e.symbol for e in module.entities.values() if e.is_defined}
    declared = (m[1] for s in module.assembler if (m := _GLOBL.fullmatch(s)))
    return [symbol for symbol in declared if symbol not in own]


def eager_reason(module: Module) -> Reason | None:
    """Return why the module must be eager, or None. Some rules are those of C++ blobs."""
    if len(_only_wanted(module)) < len(module.assembler):
        return Reason(ReasonKind.IR_ASSEMBLER)
    data = [
        e.symbol
        for name, e in module.entities.items()
        if e.is_defined
        and not name.startswith("llvm.")
        and e.linkage not in _LOCAL | _DISCARDABLE
        and module.base(e).kind == "variable"
    ]
    if data:
        return defines(data)
    if called := _initializer_calls(module):
        return Reason(ReasonKind.INITIALIZER, ", ".join(called[:3]))
    for e in module.entities.values():
        if (e.is_dso_local or e.is_hidden) and not e.is_defined and not HARMLESS.match(e.symbol):
            how = "dso_local" if e.is_dso_local else "hidden"
            return Reason(ReasonKind.IR_SAME_FILE, f"{e.symbol}, {how}")
        if e.is_local_exec:
            return Reason(ReasonKind.IR_LOCAL_EXEC, e.symbol)
    return None


def _initializer_calls(module: Module) -> list[str]:
    """Return what start-up and tear-down code refers to, apart from what every file's does."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    todo = [n for lead in _RUN_AT_LOAD if lead in module.entities for n in module.entities[lead].names]
    while todo:
        name = todo.pop()
        if name in seen or name.startswith("llvm."):
            continue
        seen.add(name)
        e = module.entities.get(name)
        is_own = e is not None and e.kind == "variable" and e.linkage in ("private", "internal")
        if e is None or HARMLESS.match(e.symbol) or is_own:
            continue
        if e.kind == "function" and e.is_defined and START_UP.match(e.symbol):
            todo += e.names
        else:
            found[e.symbol] = None
    return list(found)
