"""Carries out the steps of one link's plans: compiles, makes the bundle, and links."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from lazyck import proc
from lazyck.files import write_atomic
from lazyck.postbuild import bundle, link_rules, state
from lazyck.postbuild.cxx.mangled import is_of_the_standard_library
from lazyck.postbuild.decide import Given
from lazyck.postbuild.describe import Description, PrivateNames, describe
from lazyck.postbuild.eager import HostUnits, can_be, compile_eagerly, unit_program
from lazyck.postbuild.facts import Demands, Facts, Plan, Settled
from lazyck.postbuild.link import relink
from lazyck.postbuild.link.arguments import link_words
from lazyck.postbuild.link.observe import observe
from lazyck.postbuild.link.stubs import render_deferred, render_note, render_stubs
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.objects import cudart, elf, stand_in, symbols
from lazyck.postbuild.objects.inputs import standard_libraries
from lazyck.postbuild.objects.reveal import is_header_state, plain_name
from lazyck.postbuild.probe.group import Group, Probed
from lazyck.postbuild.probe.probe import groups_of
from lazyck.postbuild.proof import BundleProof, Finding
from lazyck.postbuild.reasons import Reason
from lazyck.quantities import counted
from lazyck.runtime.builder import source_digest
from lazyck.runtime.tool import limited, tool
from lazyck.settings.environment import runtime_source
from lazyck.toolchains import by_name
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.gpu_runtimes import of_toolchain

Timing = Callable[[str], AbstractContextManager[None]]  # measures a step of that name


@dataclass(frozen=True)
class Linked:
    plan: Plan
    state: state.LinkState
    said: proc.Result  # of the linker


class Steps:
    """Carries out the steps of one link, and adds what they show to the facts."""

    def __init__(self, given: Given, archive: str, reader: symbols.SymbolReader, timed: Timing) -> None:
        context = given.context
        self._given, self._context, self._archive = given, context, archive
        self._reader, self._timed = reader, timed
        self._contents = bundle.FileDigests()
        self._dependencies = stand_in.Dependencies(context.inputs)
        has_units = any(map(can_be, context.inputs.blobs))
        self._program = unit_program(context.options, context.compiler, context.env) if has_units else None
        self._units = HostUnits(context.cache, self._program, context.env)
        self._units.refused |= link_rules.wrapping_launches(context.inputs)
        self._eager = context.directory / "eager"
        shutil.rmtree(self._eager, ignore_errors=True)
        groups = [*given.probed.clusters, *groups_of(list(filter(can_be, given.probed.eager)))]
        self._proof = BundleProof(context, groups, self._contents, self._limits)
        self.made: Description | None = None  # what the directory's bundle is
        self.bundle_bytes = 0
        self.linked: Linked | None = None

    def _limits(self, manifest: Path, blob: str) -> Sequence[str]:
        return limited(tool(self._context.env, self._context.options.tmp / "runtime"), manifest, blob)

    def runtime_of(self, settled: Settled, demands: Demands) -> cudart.CudaRuntime | None:
        return runtime_of(self._context, settled, self._archive, demands)

    def carry_out(self, plan: Plan, facts: Facts) -> Facts:
        """Carry out the next step of `plan`. Return `facts` with what it shows. Raises
        `LazyckError`."""
        if plan.compile:
            with self._timed("eager"):
                return self._compile(plan.compile, facts)
        if plan.ask:
            with self._timed("probe"):
                return self._ask(plan.ask, facts)
        assert plan.settled
        self.linked = None
        for failed in plan.settled.failed:
            # An ahead-of-time build would fail too. Any other blob that does not compile is left
            # out unless something needs it, because generators may write unused sources.
            if failed.error and self._context.options.grade_of(failed.blob.source) == "kernels":
                raise failed.error
        with self._timed("bundle"):
            finding, wrapped = self._bundle(plan, plan.settled)
        if finding.lacking or finding.unproved:
            unproved = {b: why for b in self._sources(plan.settled) if (why := finding.unproved.get(b.source))}
            return replace(facts, headers=self._proof.added, refused={**facts.refused, **unproved})
        with self._timed("link"):
            self.linked = link_once(self._context, plan, plan.settled, wrapped, self._given.claimed)
        with self._timed("probe"):
            return self._observe(plan, plan.settled, facts) if plan.settled.lazy else facts

    def _compile(self, blobs: Mapping[CompileCommand, Reason], facts: Facts) -> Facts:
        self._units.refused |= {b: r for b, r in blobs.items() if b in facts.refused}
        made = compile_eagerly(self._context, blobs, self._eager, self._given.probed.keys, self._units)
        for m in made:
            if m.error is None and m.blob in self._given.excluded and not elf.open_image(m.object).is_lto:
                write_atomic(m.object, elf.open_image(m.object).with_hidden())
        compiled = {m.blob: self._reader.object(str(m.object)) for m in made if m.error is None}
        names = {blob: found or elf.SymbolNames() for blob, found in compiled.items()}
        return replace(facts, objects={**facts.objects, **{m.blob: m for m in made}}, names={**facts.names, **names})

    def _ask(self, blobs: frozenset[CompileCommand], facts: Facts) -> Facts:
        """Learn what `blobs` need: from the cache, else by a compile for the host."""
        cache, keys, groups = self._context.cache, self._given.probed.keys, self._given.mentions.groups
        needs: dict[CompileCommand, frozenset[str]] = {}
        for group in {groups[b].key: groups[b] for b in blobs if b in groups and groups[b].key}.values():
            known = cache.answers(f"{group.key}-needs")
            mine = {b: keys[b] for b in blobs if b in groups and groups[b].key == group.key and b in keys}
            needs |= {b: frozenset(known[key]) for b, key in mine.items() if key in known}
        fresh = sorted((b for b in blobs - needs.keys() if b in groups), key=lambda b: (b.source, b.output))
        if fresh:
            self._context.say(f"compiling {counted(len(fresh), 'blob')} for the host, to learn what they need")
        learnt: dict[str, dict[str, list[str]]] = {}
        with ThreadPoolExecutor(max(1, self._context.options.jobs)) as pool:
            tasks = [(groups[b], b.source, self._context.work / f"needs{i}.o") for i, b in enumerate(fresh)]
            for b, found in zip(fresh, pool.map(lambda task: needs_of(*task), tasks), strict=True):
                needs[b] = found or frozenset()
                if found is not None and groups[b].key and b in keys:
                    learnt.setdefault(groups[b].key, {})[keys[b]] = sorted(found)
        for key, answers in learnt.items():
            cache.keep_answers(f"{key}-needs", answers)
        return replace(facts, needs={**facts.needs, **dict.fromkeys(blobs, frozenset()), **needs})

    def _sources(self, settled: Settled) -> Iterator[CompileCommand]:
        yield from (p.blob for p in settled.lazy)
        yield from (unit.blob for unit in settled.units)

    def _bundle(self, plan: Plan, settled: Settled) -> tuple[Finding, tuple[str, ...]]:
        """Make and prove the bundle. Return what it lacks, and the functions that are wrapped."""
        context, proof = self._context, self._proof
        settled = replace(settled, lazy=proof.completed(settled.lazy))
        read = [Probed(blob=unit.blob, headers=unit.files) for unit in settled.units]
        with_reads = dict(zip(settled.units, proof.completed(read), strict=True))
        runtime = plan.runtime
        wrapped = wrapped_in(settled, plan.real, runtime)
        offered = {**plan.demands.at_exit, **plan.demands.offered}
        shown = self._shown(plan, settled)
        private = PrivateNames(settled.lazy, settled.owned, offered, context.tag, self._given.mentions, shown=shown)
        bridge = cudart.assemble(runtime, context.directory, context.compiler) if runtime else None
        against = stand_in.assemble(plan.demands.stand_ins, context.directory, context.compiler)
        made = describe(context, settled, with_reads, self._program, private, bridge, self._contents, against)
        cases = proof.cases(made)
        finding = Finding(unproved=made.unfit) if made.unfit else proof.foresee(cases)
        if not finding.lacking and not made.unfit:
            if made != self.made:
                lazy = frozenset(p.blob for p in settled.lazy)
                # What the link's objects use themselves, a program's linker exports in any case.
                known = self._defined(plan, settled) | plan.real.undefined
                used = sorted(self._given.mentions.c_names(lazy) - known)
                self.bundle_bytes = write(context, made, settled, runtime, wrapped, used, plan.demands.at_exit)
                self.made = made
            finding = proof.examine(cases)
        return finding, wrapped

    def _shown(self, plan: Plan, settled: Settled) -> frozenset[str] | None:
        """Return the inline functions that a library exports although it hides such functions, as
        far as blobs could name them, or None if it does not hide them."""
        blobs = [p.blob for p in settled.lazy]
        if not link_rules.hides_inline_functions(self._context.inputs, blobs):
            return None
        names = symbols.together((plan.real, plan.taken))
        vague = names.functions - names.strong - names.hidden - plan.demands.offered.keys()
        named = self._given.mentions.by_blob(s for s in vague if not is_of_the_standard_library(s))
        return frozenset[str]().union(*map(named, blobs))

    def _defined(self, plan: Plan, settled: Settled) -> frozenset[str]:
        """Return what the objects, archives and stubs of the link define."""
        return plan.real.defined | self._given.found.members.defined | settled.owned.stubs

    def _observe(self, plan: Plan, settled: Settled, facts: Facts) -> Facts:
        assert self.linked
        library = self._context.directory / self.linked.state.file_name
        image, inputs = elf.read_shared(library), self._context.inputs
        offered = self._dependencies.stand_ins(image, self._context.compiler)
        refused = dict(facts.refused)
        if reason := link_rules.wrapping_unseen(inputs, self._defined(plan, settled), image, self._context.tag):
            refused |= {p.blob: reason for p in settled.lazy}
        seen = observe(self._context, library, settled, plan, image)
        return replace(
            facts,
            refused=refused,
            stand_ins=offered,
            unexported=facts.unexported | seen.unexported,
            lost=facts.lost | seen.lost,
            dropped={**facts.dropped, **seen.dropped},
            without_runtime=facts.without_runtime | seen.without_runtime,
        )


def needs_of(group: Group, source: str, output: Path) -> frozenset[str] | None:
    """Return what `source`, compiled for the host, leaves undefined, and the header state of which
    it has a definition. Return None if it does not compile."""
    if group.compile(source, output, is_settling=True).status != 0:
        return None
    table = elf.open_image(output).symbols()
    output.unlink()
    return elf.asked_for(table).union(s.name for s in table if s.section and is_header_state(s))


def runtime_of(context: LinkContext, settled: Settled, archive: str, demands: Demands) -> cudart.CudaRuntime | None:
    """Return the static runtime in `archive` as the blobs of `settled` share it, or the wrappers of
    a shared one. Return None if the blobs need neither."""
    library, machine = context.name, context.inputs.machine
    used = {p.blob.call.toolchain for p in settled.lazy}
    if archive and any(by_name(t).takes_static_runtime(context.link) for t in used):
        return cudart.read(archive, library, machine)
    apart = {p.blob.call.toolchain for p in settled.lazy if can_be(p.blob) and not demands.whole}
    shared = used.intersection(u.blob.call.toolchain for u in settled.units) | apart
    names = [name for t in shared for name in of_toolchain(t).functions]
    return cudart.wrappers(names, library, machine) if names else None


def write(
    context: LinkContext,
    made: Description,
    settled: Settled,
    runtime: cudart.CudaRuntime | None,
    wrapped: Sequence[str],
    used: Sequence[str],
    at_exit: Mapping[str, str],
) -> int:
    """Make the bundle, and objects that are added to the link. Return the bundle's bytes."""
    directory, compiler, machine = context.directory, context.compiler, context.inputs.machine
    data, size = bundle.write(directory / "bundle", made.files, made.manifest)
    write_atomic(directory / "manifest", data)
    if settled.lazy or settled.units:
        names = made.manifest.functions
        device, aliases = len(made.manifest.symbols) - len(names), aliases_of(settled, names)
        text = render_stubs(
            names,
            "manifest",
            machine,
            aliases,
            tag=context.tag,
            exported=settled.plain,
            device_symbols=device,
            wrapped=wrapped,
            used=used,
            at_exit=at_exit,
        )
        text += cudart.render_table(runtime) if runtime else ""
    else:
        text = render_note("manifest", machine)
    relink.assemble(directory, "stubs", text, compiler)
    if context.inputs.stays:
        relink.assemble(directory, "deferred", render_deferred(), compiler)
    return size


def wrapped_in(settled: Settled, real: elf.SymbolNames, runtime: cudart.CudaRuntime | None) -> tuple[str, ...]:
    """Return the functions of GPU runtimes that this link wraps. These are the ones that the link
    or its blobs use, if any of its kernels are compiled by themselves."""
    split = [u.blob for u in settled.units] + [p.blob for p in settled.lazy if runtime and can_be(p.blob)]
    used = [of_toolchain(t).functions for t in {blob.call.toolchain for blob in split}]
    blobs = (*runtime.functions, *runtime.wrapped) if runtime else ()
    return tuple(sorted(real.undefined.union(blobs).intersection(chain(*used))))


def aliases_of(settled: Settled, names: Sequence[str]) -> dict[str, str]:
    """Map each stub of `names` that is an alias to the stub with which it shares an address."""
    shown = frozenset(map(plain_name, names))
    pairs = ((p, a, t) for p in settled.lazy for a, t in zip(p.aliases[::2], p.aliases[1::2], strict=True))
    return {a: t for p, a, t in pairs if {a, t} <= shown.intersection(settled.owned.lazy[p.blob])}


def link_once(
    context: LinkContext, plan: Plan, settled: Settled, wrapped: Sequence[str], members: frozenset[str]
) -> Linked:
    """Link the library. Archives and shared libraries of the project define the symbols `members`.

    The runtime's calls of these bring in nothing where a shared library of the system is sure to
    have them, as the linked file's needs say.
    """
    link, options, directory = context.link, context.options, context.directory
    has_runtime = bool(settled.lazy or settled.units)
    runtime = runtime_source() if has_runtime else None
    objects = relink.runtime_objects(directory, context.compiler, runtime, context.env) if runtime else []
    called = members.intersection(frozenset().union(*(elf.read_object(path).undefined for path in objects)))
    system = [elf.read_dependency(p) for p in standard_libraries(link.call.argv[: link.call.prefix]) if called]
    eager: dict[int, list[str]] = {}
    for made in settled.compiled:
        eager.setdefault(context.inputs.brought[made.blob], []).append(made.object.name)
    demanded = plan.demands if has_runtime else None
    words, originals = link_words(context, eager, demanded, wrapped)
    st = state.LinkState(
        library=context.name,
        file_name=os.path.basename(link.output),
        output=state.relative(link.output, directory),
        installed=state.relative(options.install_dir, directory),
        cwd=state.relative(link.call.cwd, directory),
        words=tuple(words),
        runtime=source_digest(runtime) if runtime else "",
        runtime_compiler=context.compiler,
        env=link.call.env,
        response=by_name(link.call.toolchain).response,
        not_for_runtime=tuple(sorted(called.intersection(chain(*(library.linkable for library in system))))),
        keeps_root=bool(options.root),
        beside=options.beside,
    )
    more = [item for item in context.inputs.linker if item.writes]
    said = relink.relink(st, directory, objects, context.env, originals, more)
    if st.not_for_runtime:
        needed = elf.read_shared(directory / st.file_name).needed
        sure = frozenset(chain(*(library.linkable for library in system if library.soname in needed)))
        if not sure.issuperset(st.not_for_runtime):
            st = replace(st, not_for_runtime=tuple(sorted(sure.intersection(st.not_for_runtime))))
            said = relink.relink(st, directory, objects, context.env, originals, more)
    return Linked(plan, st, said)
