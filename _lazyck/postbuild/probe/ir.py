"""Probes blobs of LLVM IR: what they define stands in their text. Bitcode is turned into text
first, many files at a time, by the compiler that the project compiles it with."""

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _lazyck import proc
from _lazyck.postbuild.probe.answer import Answer
from _lazyck.postbuild.probe.group import Group
from _lazyck.postbuild.probe.ir_text import Entity, Module, Unreadable, read_module
from _lazyck.postbuild.probe.one_group import Answers, Doubt
from _lazyck.postbuild.probe.preprocess import read_source
from _lazyck.postbuild.probe.real_object import defines, is_harmless, is_start_up
from _lazyck.postbuild.reasons import Kind, Reason

_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_BATCH = 64  # files for one start of a compiler
_RUN_AT_LOAD = ("llvm.global_ctors", "llvm.global_dtors")
# Functions of these linkages are never in an object under their name, or only if the module itself
# uses them.
_LOCAL = frozenset({"private", "internal", "available_externally"})
_DISCARDABLE = frozenset({"linkonce", "linkonce_odr"})
# llvm.exp.f32 becomes expf.
_LIBM = re.compile(r"llvm\.(\w+)\.(f32|f64|f80|f128)")
_GLOBL = re.compile(r"\.globa?l\s+([\w.$]+)", re.ASCII)
_LIBM_NAMES = {"maxnum": "fmax", "minnum": "fmin"}
_LIBM_SUFFIX = {"f32": "f", "f64": "", "f80": "l", "f128": "l"}
_WEAK = frozenset({"weak", "weak_odr"})  # always there; gives way to another definition


def probe_ir(group: Group, work: Path, jobs: int) -> Answers:
    """Probe all sources of `group`, by so many compilers at a time. Writes below `work` only."""
    work.mkdir(parents=True, exist_ok=True)
    answers = Answers(read=set(group.sources))
    bitcode = [s for s in group.sources if _is_bitcode(s)]
    texts = dict.fromkeys(set(group.sources) - set(bitcode), "") | _disassembled(group, work, bitcode, jobs)
    for source in group.sources:
        if source not in texts:
            answers.doubts[source] = Doubt("its bitcode cannot be turned into text")
            continue
        try:
            module = read_module(read_source(texts[source] or source))
            found = functions(module)
            reason = eager_reason(module)
            if not reason and found.unreachable and not found.symbols:
                reason = Reason(Kind.IR_UNREACHABLE, ", ".join(found.unreachable[:3]))
            answers.found[source] = Answer(eager=reason) if reason else found
        except Unreadable as e:
            answers.doubts[source] = Doubt(f"its LLVM IR cannot be read: {e}")
    return answers


# -- bitcode -------------------------------------------------------------------------------------


def _is_bitcode(source: str) -> bool:
    with open(source, "rb") as f:
        return f.read(4) in _BITCODE


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


# -- deciding ------------------------------------------------------------------------------------


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
    elsewhere = (e for n, e in module.entities.items() if not e.is_defined and n in mentioned)
    by_ir = {_LIBM.sub(_libm_name, e.symbol) for e in elsewhere if not _is_inner(e.symbol)}
    return frozenset(by_ir.union(_only_wanted(module)))


def _only_wanted(module: Module) -> list[str]:
    """Return the symbols that assembler outside of functions declares and the module does not
    define. They become undefined symbols of its object. The `<iostream>` of GCC 13 and newer has
    one."""
    own = {e.symbol for e in module.entities.values() if e.is_defined}
    declared = (m[1] for s in module.assembler if (m := _GLOBL.fullmatch(s)))
    return [symbol for symbol in declared if symbol not in own]


def _is_inner(symbol: str) -> bool:
    """Return whether `symbol` is an intrinsic that calls nothing."""
    return symbol.startswith("llvm.") and not _LIBM.fullmatch(symbol)


def _libm_name(intrinsic: re.Match[str]) -> str:
    """Return the function of libm that an intrinsic may end in."""
    return _LIBM_NAMES.get(intrinsic[1], intrinsic[1]) + _LIBM_SUFFIX[intrinsic[2]]


def eager_reason(module: Module) -> Reason | None:
    """Return why the module must be eager, or None. Some rules are those of C++ blobs."""
    if len(_only_wanted(module)) < len(module.assembler):
        return Reason(Kind.IR_ASSEMBLER)
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
        return Reason(Kind.INITIALIZER, ", ".join(called[:3]))
    for e in module.entities.values():
        if (e.is_dso_local or e.is_hidden) and not e.is_defined and not is_harmless(e.symbol):
            how = "dso_local" if e.is_dso_local else "hidden"
            return Reason(Kind.IR_SAME_FILE, f"{e.symbol}, {how}")
        if e.is_local_exec:
            return Reason(Kind.IR_LOCAL_EXEC, e.symbol)
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
        if e is None or is_harmless(e.symbol) or _is_own_variable(e):
            continue
        if e.kind == "function" and e.is_defined and is_start_up(e.symbol):
            todo += e.names
        else:
            found[e.symbol] = None
    return list(found)


def _is_own_variable(e: Entity) -> bool:
    return e.kind == "variable" and e.linkage in ("private", "internal")
