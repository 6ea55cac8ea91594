"""Decides what becomes of each blob of a link, from what is known so far (see facts.py). Nothing is
run here, but for names in messages.

What a blob may need of its library is offered to it: every symbol that its text could name. Where
offering does not do, and a blob would have to be eager, the compiler is asked first.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lazyck.postbuild import link_rules
from lazyck.postbuild.archives import Archives, Members
from lazyck.postbuild.cxx.mangled import is_of_the_standard_library, is_private, template_of
from lazyck.postbuild.facts import Demands, Facts, Plan, Settled
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.mentions import Mentions
from lazyck.postbuild.objects import cudart, elf, kernels
from lazyck.postbuild.objects.elf import SymbolNames
from lazyck.postbuild.objects.inputs import standard_libraries
from lazyck.postbuild.objects.reveal import AT_EXIT, private_name
from lazyck.postbuild.objects.symbols import LinkSymbols, source_name, together
from lazyck.postbuild.objects.vtables import of_classes_with
from lazyck.postbuild.ownership import Ownership, assign
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.probe.probe import ProbeResult
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.toolchains import by_name, linker_options
from lazyck.toolchains.command import CompileCommand

Blobs = Mapping[CompileCommand, Reason]


@dataclass(frozen=True)
class Given:
    """Holds what is known of a link before anything is decided."""

    context: LinkContext
    probed: ProbeResult
    found: LinkSymbols
    mentions: Mentions
    archives: Archives
    early: frozenset[str] = frozenset()  # functions that resolvers (IFUNC) of other files may call
    standard: frozenset[str] = frozenset()  # functions that the runtime calls, and that blobs or objects define

    @cached_property
    def claimed(self) -> frozenset[str]:
        """Return what members of archives and shared libraries that the link names define, without
        the system's own."""
        call = self.context.link.call
        system = {os.path.realpath(path) for path in standard_libraries(call.argv[: call.prefix])}
        own = (path for _, path in self.context.inputs.libraries if os.path.realpath(path) not in system)
        return self.found.members.defined.union(*(elf.read_dependency(path).linkable for path in own))

    @cached_property
    def excluded(self) -> frozenset[CompileCommand]:
        return link_rules.excluded(self.context.inputs)


def decide(given: Given, facts: Facts, runtime_of: Callable[[Settled, Demands], cudart.CudaRuntime | None]) -> Plan:
    """Return the next step. `runtime_of` tells which GPU runtime blobs share if a link is so."""
    wanted = {**given.probed.eager, **facts.refused}
    if fresh := _fresh(wanted, facts):
        return Plan(compile=fresh)
    copies = copies_in((p.blob, frozenset(p.symbols)) for p in given.probed.probed)
    copies |= copies_in((blob, names.strong) for blob, names in facts.names.items())
    lazy = [p for p in given.probed.probed if p.blob not in copies and p.blob not in facts.objects]
    needs = {p.blob: p.needs for p in lazy if p.needs is not None} | dict(facts.needs)
    needed = _needed(lazy, given.mentions)
    members = given.archives.decide(facts.names, needed, needs)
    if members.asks:
        return Plan(ask=members.asks)
    unneeded = members.unneeded - {made.blob for made in facts.objects.values() if made.error}
    left_out = copies | unneeded
    own = (names for blob, names in facts.names.items() if blob not in left_out)
    taken = members.taken
    given_names = [given.found.objects, SymbolNames(undefined=given.found.members.undefined)]
    real = together((*given_names, *own))
    offers = [p for p in lazy if p.blob not in unneeded]
    owned = assign(offers, real.undefined | needed, real.defined, real.strong)
    if reasons := _reasons(given, facts, offers, owned, real, needed):
        return Plan(compile=reasons)
    objects = tuple(made for blob, made in facts.objects.items() if blob not in left_out)
    bound = link_rules.bound(given.context.inputs, together((real, taken)), owned.stubs)
    unexported = facts.unexported.union(*(p.symbols for p in offers if p.blob in given.excluded))
    within = bound | unexported
    shown = tuple(replace(p, private=p.private | (within & {*p.symbols})) if within else p for p in offers)
    hidden_by_options = frozenset[str]().union(*(p.private for p in offers if p.private and _is_hiding(p.blob)))
    protected = frozenset[str]().union(*(p.private for p in offers))
    seen = (bound | protected) - hidden_by_options - unexported
    plain = {s: "protected" if s in protected else "default" for s in seen}
    settled = Settled(owned, shown, objects, copies, unneeded - copies, plain)
    hidden = _own(real.hidden | taken.hidden | (within & (real.defined | taken.defined)))
    ask, eager = _out_of_reach(given, facts, settled, real, hidden, needs)
    if ask or eager:
        return Plan(eager, ask)
    demands = _demands(given, facts, settled, hidden, members)
    runtime = runtime_of(settled, demands)
    if runtime and not facts.without_runtime.isdisjoint(runtime.wrapped):
        demands = replace(demands, whole=True)
        runtime = runtime_of(settled, demands)
    return Plan(settled=settled, demands=demands, real=real, taken=taken, runtime=runtime)


def _is_hiding(blob: CompileCommand) -> bool:
    """Return whether options of the compile hide functions. The probe has them protected instead,
    as a source may have them by itself."""
    toolchain = by_name(blob.call.toolchain)
    return toolchain.hides_symbols(toolchain.base_words(blob))


def _fresh(eager: Blobs, facts: Facts) -> Blobs:
    """Return the blobs to compile, again where a host unit was refused."""
    made = facts.objects
    return {b: r for b, r in eager.items() if b not in made or (b in facts.refused and made[b].unit)}


def _needed(lazy: Iterable[Probed], mentions: Mentions) -> frozenset[str]:
    """Return the functions that blobs define because they instantiate a class explicitly, and that
    the text of another blob names: they have stubs."""
    instances = {p.blob: _own(_instances(p)) for p in lazy}
    every = frozenset[str]().union(*instances.values())
    named = mentions.by_blob(every)
    return frozenset[str]().union(*(named(blob) - own for blob, own in instances.items()))


def _instances(p: Probed) -> frozenset[str]:
    """Return what a blob defines weakly because it instantiates a class explicitly, judged by
    names. Lambdas and templates in its members are left out, as users instantiate them too."""
    marker = "instantiation of a class: "
    if marker not in p.compiled:
        return frozenset()
    name = p.compiled.partition(marker)[2].partition("<")[0].split()[-1].rpartition("::")[2]
    return frozenset(s for s in p.weak if template_of(s) == name)


def _reasons(
    given: Given,
    facts: Facts,
    offers: Iterable[Probed],
    owned: Ownership,
    real: SymbolNames,
    needed: frozenset[str],
) -> Blobs:
    """Return the blobs that must be real objects beside those that are, and why."""
    reasons, nothing = dict(owned.unneeded), Reason(ReasonKind.NO_FUNCTION)
    by_blob = {p.blob: p for p in offers}
    left = (real.undefined | needed) - real.defined
    wanted = left.union(*(by_blob[blob].needs or () for blob in owned.lazy)) - real.defined
    files = [*given.found.files.values(), *facts.names.values()]
    early = asked_early(files, given.early, given.standard)
    parts = (s.partition("@") for names in (real, given.found.members) for s in names.defined if "@" in s)
    older = frozenset(name for name, _, version in parts if name and version and "@" not in version)
    versioned = given.mentions.by_blob(older)
    for blob, p in by_blob.items():
        if launched := left.intersection(p.kernels):
            reasons[blob] = kernels.launched(min(launched), _user(given, facts, min(launched)), given.context.env)
        elif replaced := given.standard.intersection(p.symbols):
            reasons[blob] = Reason(ReasonKind.STANDARD, min(replaced))
        elif asked := early.intersection(p.symbols):
            reasons[blob] = Reason(ReasonKind.RESOLVER, min(asked))
        elif blob in owned.lazy and (used := left.intersection(p.unreachable)):
            reasons[blob] = Reason(ReasonKind.HIDDEN, min(used))
        elif used := versioned(blob):
            reasons[blob] = Reason(ReasonKind.VERSIONS, min(used))
        elif blob in owned.lazy and (data := wanted & p.weak_data):
            reasons[blob] = Reason(ReasonKind.TEMPLATE_DATA, ", ".join(sorted(data)[:3]))
        elif p.kernels and reasons.get(blob) == nothing:
            is_hidden = set(p.kernels) <= set(p.unreachable)
            reasons[blob] = Reason(ReasonKind.KERNELS_HIDDEN if is_hidden else ReasonKind.KERNELS_ALONE)
        elif p.unreachable and reasons.get(blob) == nothing:
            reasons[blob] = Reason(ReasonKind.HIDDEN, p.unreachable[0])
    return reasons


def asked_early(files: Iterable[SymbolNames], early: frozenset[str], standard: frozenset[str]) -> frozenset[str]:
    """Return the symbols that may be called where the runtime cannot work: those that are `early`,
    all that files with resolvers of IFUNCs, which run while the loader relocates, or with
    functions of the `standard` libraries, which the runtime calls, ask for, those that define this,
    and so on."""
    files = list(files)
    taken = [f for f in files if f.resolved or not standard.isdisjoint(f.strong)]
    asked = early.union(*(f.undefined for f in taken))
    while more := [f for f in files if f not in taken and not f.defined.isdisjoint(asked)]:
        taken += more
        asked = asked.union(*(f.undefined for f in more))
    return asked


def _user(given: Given, facts: Facts, kernel: str) -> str:
    """Return what to call the file of the link that names `kernel`."""
    files = {**given.found.files, **{str(facts.objects[b].object): names for b, names in facts.names.items()}}
    return source_name(next((path for path, names in files.items() if kernel in names.undefined), ""))


def _out_of_reach(
    given: Given,
    facts: Facts,
    settled: Settled,
    real: SymbolNames,
    hidden: frozenset[str],
    needs: Mapping[CompileCommand, frozenset[str]],
) -> tuple[frozenset[CompileCommand], Blobs]:
    """Return the blobs that may need what cannot be offered, and those that are known to, or of
    which another blob is known to need it, with the reasons."""
    lazy, env, mentions = settled.lazy, given.context.env, given.mentions
    handles = {k: p.blob for p in lazy for k in p.kernels if k not in p.weak and not is_private(k)}
    called = {s: p.blob for p in lazy for s in _own(p.unreachable) - p.weak - real.strong if s not in p.kernels}
    bound = mentions.attributed(_alone(given, real, hidden))
    named = mentions.by_blob(facts.lost | handles.keys() | called.keys() | bound)
    own = {p.blob: {*p.symbols, *p.unreachable, *p.kernels} for p in lazy}
    ask = frozenset(p.blob for p in lazy if p.blob not in needs and named(p.blob) - own[p.blob])
    if ask:
        return ask, {}
    eager: dict[CompileCommand, Reason] = {}
    within = hidden | settled.owned.stubs
    for p in lazy:
        asked = needs.get(p.blob, frozenset())
        here = {s.removesuffix(elf.WANTED_HERE) for s in asked if s.endswith(elf.WANTED_HERE)}
        lost = (asked & facts.lost) | (here & within)
        if lost:
            eager[p.blob] = Reason(ReasonKind.NOT_EXPORTED, min(lost))
        for symbol in asked.intersection(called) - own[p.blob]:
            eager[called[symbol]] = Reason(ReasonKind.HIDDEN, symbol)
        for kernel in asked.intersection(handles) - own[p.blob]:
            eager[handles[kernel]] = kernels.launched(kernel, Path(p.blob.source).name, env)
    return ask, eager


def _alone(given: Given, real: SymbolNames, hidden: frozenset[str]) -> frozenset[str]:
    """Return those of the symbols `hidden` in objects that a file which uses them leaves undefined:
    not what each such file has itself."""
    strong = real.strong | given.found.members.strong
    weak = hidden - strong
    instances = frozenset(s for s in weak if template_of(s) in given.mentions.declared_instances)
    return (hidden & strong) | instances | of_classes_with(strong, weak)


def _demands(given: Given, facts: Facts, settled: Settled, hidden: frozenset[str], members: Members) -> Demands:
    """Return what the link must do so that lazy blobs find all that they could name."""
    blobs, mentions = [p.blob for p in settled.lazy], given.mentions
    # Compilers use some functions of C without a declaration. Those that the library has are few.
    offered = frozenset(s for s in hidden if not s.startswith("_Z")) if blobs else frozenset[str]()
    named = mentions.by_blob(hidden - offered)
    offered = offered.union(*{named(blob) for blob in blobs}) - facts.lost
    alone = mentions.by_blob(frozenset[str]().union(*facts.dropped.values()))
    used = frozenset[str]().union(*{alone(blob) for blob in blobs})
    context = given.context
    is_closed = bool(blobs) and context.inputs.shared
    own_ends = given.found.objects.defined.union(linker_options.wrapped(context.inputs.linker))
    return Demands(
        pulled=members.pulled,
        only_named=members.only_named,
        kept=tuple(path for path, symbols in facts.dropped.items() if symbols & used),
        offered={s: private_name(s, context.tag) for s in sorted(offered)},
        at_exit={s: private_name(s, context.tag) for s in AT_EXIT if is_closed and s not in own_ends},
        stand_ins=facts.stand_ins,
        has_blobs=bool(blobs),
    )


def _own(symbols: Iterable[str]) -> frozenset[str]:
    """Return those of `symbols` that other files can name, and the standard library lacks. Each
    object has its own `DW.ref.…`."""
    each = (s for s in symbols if not is_of_the_standard_library(s) and not is_private(s))
    return frozenset(s for s in each if not s.startswith("DW.ref."))


def copies_in(blobs: Iterable[tuple[CompileCommand, frozenset[str]]]) -> frozenset[CompileCommand]:
    """Return those of `blobs` that define what an earlier blob of the same source does. `blobs`
    pairs each with what it defines. Copies are, for example, the static and the PIC object of one
    file in two archives: a linker takes the first of them too."""
    seen: set[tuple[str, frozenset[str]]] = set()
    found = set()
    for blob, defined in blobs:
        if defined and (blob.source, defined) in seen:
            found.add(blob)
        seen.add((blob.source, defined))
    return frozenset(found)
