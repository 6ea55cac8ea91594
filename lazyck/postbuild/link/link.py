"""Turns one intercepted link into the lazy library."""

import hashlib
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from lazyck import proc, waiting
from lazyck.abi import Role
from lazyck.files import encode, own_folder, write_atomic
from lazyck.postbuild import bundle, state, summary
from lazyck.postbuild.build_options import BuildOptions
from lazyck.postbuild.describe import Description, PrivateNames, describe, downgrade
from lazyck.postbuild.eager import BY_KERNEL, HostUnit, HostUnits, Program, can_be
from lazyck.postbuild.link import relink
from lazyck.postbuild.link.arguments import ahead_link, link_words, save_ahead
from lazyck.postbuild.link.reach import Demands, Reach, check_complete
from lazyck.postbuild.link.stubs import render_deferred, render_note, render_stubs
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.objects import cudart, elf, symbols
from lazyck.postbuild.objects.inputs import LinkInputs, library_name, read_inputs
from lazyck.postbuild.objects.reveal import plain_name
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.probe.probe import ProbeResult, cpu_seconds, groups_of, probe
from lazyck.postbuild.probe_cache import ProbeCache
from lazyck.postbuild.proof import BundleProof, Finding
from lazyck.postbuild.reasons import Reason, ReasonKind, of_pair, sentence
from lazyck.postbuild.references import TextReferences
from lazyck.postbuild.settle import Settled, Settler
from lazyck.quantities import counted
from lazyck.runtime.builder import source_digest
from lazyck.runtime.tool import limited, tool
from lazyck.settings.environment import runtime_source, tools_dir
from lazyck.toolchains import HOST, by_name
from lazyck.toolchains.command import LinkCommand
from lazyck.toolchains.gpu_runtimes import of_toolchain
from lazyck.units.program import build_program
from lazyck.units.program import source_digest as units_digest

# These options make clang a cross compiler. The runtime is compiled with them too.
_CHOOSE_TARGET = frozenset({"-target", "--target", "--sysroot", "--gcc-toolchain", "--gcc-install-dir"})


_SAID = {
    "probe": "finding out what its blobs define",
    "eager": "compiling what is not lazy, and the host's code",
    "bundle": "making the lazy library's own parts",
    "link": "linking",
}


@dataclass
class Clock:
    """Measures wall and CPU seconds per step of a link, with those of started processes."""

    library: str
    walls: dict[str, float] = field(default_factory=dict)
    cpus: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begun, cpu = time.monotonic(), cpu_seconds()
        with waiting.saying(f"{self.library}: {_SAID[name]}"):
            yield
        self.walls[name] = self.walls.get(name, 0.0) + time.monotonic() - begun
        self.cpus[name] = self.cpus.get(name, 0.0) + cpu_seconds() - cpu


def link_lazily(
    link: LinkCommand, options: BuildOptions, env: Mapping[str, str], say: Callable[[str], None]
) -> summary.LinkSummary:
    """Make the output of `link` a lazy library, in place of the link itself. Raises `LazyckError`.

    Everything is made in a directory of its own, which replaces the last build's directory at the
    end. If this link fails, the library of the last build therefore still finds its bundle.
    """
    clock = Clock(os.path.basename(link.output))
    inputs = read_inputs(link, by_name(link.call.toolchain).table)
    final = library_dir(link, options)
    compiler = runtime_compiler(link, inputs, env)
    cache = ProbeCache(options.tmp / "probe-cache")
    context = LinkContext(link, inputs, options, env, final, state.staging(final), compiler, cache, say)
    directory = context.directory
    reader = symbols.SymbolReader(link.call.argv[: link.call.prefix], link.call.cwd, env)
    with clock.step("probe"), runtime_meanwhile(context):
        found = symbols.read_symbols(inputs, reader)
        archive, probed = static_runtime(context, probe_blobs(context, found))
    references = TextReferences(probed.texts)
    program = unit_program(context)
    units = HostUnits(cache, program, env)
    settler = Settler(context, probed, found, reader, references, units)
    reach = Reach(context, probed, references, found.members)
    contents = bundle.FileDigests()
    groups = [*(group for group, _ in probed.texts), *groups_of(list(filter(can_be, probed.eager)))]
    proof = BundleProof(context, groups, contents, lambda *of: limited(tool(env, options.tmp / "runtime"), *of))
    demands = Demands()
    written: Description | None = None
    while True:
        with clock.step("eager"):
            settled = settler.settle(demands.eager, demands.needed)
        for failed in settled.failed:
            # An ahead-of-time build would fail too. Any other blob that does not compile is left
            # out unless something needs it, because generators may write unused sources.
            if failed.error and options.grade_of(failed.blob.source) == "kernels":
                raise failed.error
        with clock.step("bundle"):
            settled = replace(settled, lazy=proof.completed(settled.lazy))
            with_reads = dict(zip(settled.units, proof.completed(reads_of(settled.units)), strict=True))
            runtime = runtime_of(context, settled, archive, demands)
            private = PrivateNames(settled.lazy, settled.owned, demands.renamed, references)
            bridge = cudart.assemble(runtime, directory, compiler) if runtime else None
            made = describe(context, settled, with_reads, program, private, bridge, contents, demands.versions)
            cases = proof.cases(made)
            finding = Finding(unproved=made.unfit) if made.unfit else proof.foresee(cases)
            if not finding.lacking and not made.unfit:
                if made != written:
                    wrapped = wrapped_in(settled, settler, runtime)
                    bundle_bytes = write(context, made, settled, runtime, wrapped)
                    written = made
                finding = proof.examine(cases)
        if finding.lacking or finding.unproved:
            whole = [*settled.lazy, *with_reads.values()]
            unproved = {p.blob: why for p in whole if (why := finding.unproved.get(p.blob.source))}
            units.refused |= unproved
            settler.forget_units(unproved)
            demands = replace(demands, eager={**demands.eager, **unproved})
            continue
        with clock.step("link"):
            st, said = link_once(context, settled, demands, wrapped)
        with clock.step("probe"):
            before = demands
            if settled.lazy:
                demands = reach.demands(directory / st.file_name, settled, settler.real(), before, runtime)
        if demands == before:
            break
    if settled.failed:
        check_complete(st, directory, settled.failed, [path for _, path in inputs.libraries], env)
    relink.repeat(said)
    relink.check_places(st, final)
    for scratch in ("probe", "proof"):
        shutil.rmtree(directory / scratch, ignore_errors=True)
    cache.tidy()
    write_atomic(directory / "taken", b"\0".join(encode(b.output) for b in inputs.blobs))
    state.save(st, directory)
    keep_link(context, settled, demands)
    state.commit(directory, final)
    delivered = relink.deliver(st, final)
    done = summary.LinkSummary(
        library=st.library,
        output=link.output,
        deferred=sum(options.grade_of(b.source) == "blob" for b in inputs.blobs if b not in settled.copies),
        lazy=len(settled.lazy),
        symbols=len(made.manifest.functions),
        units=len(settled.units),
        kernels=sum(len(u.kernels) for u in settled.units),
        by_kernel=tuple(downgrade(e, options) for e in settled.objects if e.unit and e.reasons != (BY_KERNEL,)),
        spare=len(settled.owned.spare),
        unneeded=len(settled.unneeded),
        eager=tuple(of_pair(*pair) for pair in made.manifest.eager),
        warnings=tuple(warnings(settled)),
        probe_seconds=clock.walls["probe"],
        bundle_seconds=clock.walls["bundle"],
        eager_seconds=clock.walls["eager"],
        link_seconds=clock.walls["link"],
        cpu_seconds=cpu_seconds() - clock.cpus["eager"] - probed.eager_seconds,
        peak_rss_kib=max(probed.peak_rss_kib, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss),
        library_bytes=(final / st.file_name).stat().st_size,
        bundle_bytes=bundle_bytes,
        installed=str(delivered[-1]) if st.installed else "",
        archives=tuple(path for path in inputs.stays if path in inputs.archives),
    )
    summary.save(done, final / summary.NAME)
    return done


@contextmanager
def runtime_meanwhile(context: LinkContext) -> Iterator[None]:
    """Compile the runtime while the caller's block runs, if `jobs` allows it, since a user's
    first library waits for it. Errors are ignored: the link needs the runtime, and reports them."""
    with ThreadPoolExecutor(1) as beside:
        if context.inputs.blobs and context.options.jobs > 1:
            beside.submit(relink.runtime_objects, context.directory, context.compiler, runtime_source(), context.env)
        yield


def library_dir(link: LinkCommand, options: BuildOptions) -> Path:
    """Return where lazyck keeps what belongs to the library that `link` makes. The name is
    readable, and there is one directory per output path."""
    tag = hashlib.sha256(encode(os.path.relpath(link.output, options.tmp_dir))).hexdigest()[:8]
    return options.tmp / "libs" / f"{library_name(link.output)}-{tag}"


def probe_blobs(context: LinkContext, found: symbols.LinkSymbols) -> ProbeResult:
    """Probe the symbols of the link's blobs. All blobs are left unprobed if the program cannot load
    blobs, or if it is not known what real objects need."""
    inputs, options = context.inputs, context.options
    reason: Reason | None = None
    names = {item.name or item.words[0] for item in inputs.items}
    if names & {"-static", "--static", "-static-pie"} and not inputs.shared:
        reason = Reason(ReasonKind.STATIC)
    elif lacks_defaults(inputs, names):
        reason = Reason(ReasonKind.FREESTANDING)
    elif found.unread:
        reason = Reason(ReasonKind.LTO, os.path.basename(found.unread))
    if reason:
        return ProbeResult((), dict.fromkeys(inputs.blobs, reason), 0)
    shutil.rmtree(context.work, ignore_errors=True)
    context.work.mkdir()
    by_kernel = {b: BY_KERNEL for b in inputs.blobs if options.grade_of(b.source) == "kernels"}
    blobs = [b for b in inputs.blobs if b not in by_kernel]
    found_out = probe(blobs, context.work, context.cache, jobs=options.jobs)
    return replace(found_out, eager={**found_out.eager, **by_kernel})


def lacks_defaults(inputs: LinkInputs, names: Set[str]) -> bool:
    """Return whether options among `names` leave out libraries or start files that the runtime
    needs, and the command does not name them itself, as libtool's commands for C++ do."""
    named = {item.value for item in inputs.items if item.role is Role.LIBRARY}
    libraries: set[str] = set()
    if names & {"-nostdlib", "-nodefaultlibs"}:
        libraries = {"stdc++", "gcc_s", "c"}
    elif "-nolibc" in names:
        libraries = {"c"}
    begins = any("crtbegin" in os.path.basename(path) for path in inputs.objects)  # it defines `__dso_handle`
    return not libraries <= named or (bool(names & {"-nostdlib", "-nostartfiles"}) and not begins)


def unit_program(context: LinkContext) -> Program | None:
    """Return the program that splits this link's sources, or None if it can split none."""
    if not any(map(can_be, context.inputs.blobs)):
        return None
    folder = own_folder(tools_dir(context.env), "programs") or context.options.tmp / "programs"
    return Program(build_program(folder, context.compiler), units_digest())


def reads_of(units: Sequence[HostUnit]) -> list[Probed]:
    """Return what each of the `units` reads: all that units of its directory and options do."""
    files: dict[tuple[object, ...], set[str]] = {}

    def shared(unit: HostUnit) -> tuple[object, ...]:
        return by_name(unit.blob.call.toolchain).base_words(unit.blob), unit.blob.call.cwd

    for unit in units:
        files.setdefault(shared(unit), set()).update(unit.files)
    read = {key: frozenset(found) for key, found in files.items()}
    return [Probed(blob=unit.blob, headers=read[shared(unit)]) for unit in units]


def runtime_of(context: LinkContext, settled: Settled, archive: str, demands: Demands) -> cudart.CudaRuntime | None:
    """Return the static runtime in `archive` as the blobs of `settled` share it, or the wrappers of
    a shared one. Return None if the blobs need neither."""
    library, machine = context.soname(settled.owned) or context.name, context.inputs.machine
    used = {p.blob.call.toolchain for p in settled.lazy}
    if archive and any(by_name(t).takes_static_runtime(context.link) for t in used):
        return cudart.read(archive, library, machine)
    apart = {p.blob.call.toolchain for p in settled.lazy if can_be(p.blob) and not demands.whole}
    shared = used.intersection(u.blob.call.toolchain for u in settled.units) | apart
    names = [name for t in shared for name in of_toolchain(t).functions]
    return cudart.wrappers(names, library, machine) if names else None


def static_runtime(context: LinkContext, probed: ProbeResult) -> tuple[str, ProbeResult]:
    """Return the static GPU runtime that the link puts into the library, and what of `probed` can
    share it. The former is an empty string if there is none."""
    takers = {
        t for t in {p.blob.call.toolchain for p in probed.probed} if by_name(t).takes_static_runtime(context.link)
    }
    found = (cudart.find_archive(of_toolchain(t), context.link, context.inputs, context.env) for t in sorted(takers))
    archive = next(filter(None, found), "")
    if archive or not takers:
        return archive, probed
    lazy = tuple(p for p in probed.probed if p.blob.call.toolchain not in takers)
    left_out = (p.blob for p in probed.probed if p.blob.call.toolchain in takers)
    return "", replace(
        probed, probed=lazy, eager={**probed.eager, **dict.fromkeys(left_out, Reason(ReasonKind.NO_CUDART))}
    )


def warnings(settled: Settled) -> list[str]:
    """Return what the user should know although the library links."""
    doubles = [(symbol, blob.source) for symbol, blob in settled.owned.doubles]
    found = [
        f"{symbol} is also defined by a second blob, {source}: the first one is used" for symbol, source in doubles[:5]
    ]
    if len(doubles) > 5:
        more = counted(len(doubles) - 5, "more symbol is", "more symbols are")
        found.append(f"... and {more} defined by two blobs")
    found += [
        f"{e.blob.source} was left out: it can be neither probed nor compiled, and no symbol is undefined without it "
        f"({sentence(e.reasons)})"
        for e in settled.failed
    ]
    return found


def write(
    context: LinkContext,
    made: Description,
    settled: Settled,
    runtime: cudart.CudaRuntime | None,
    wrapped: Sequence[str],
) -> int:
    """Make the bundle, and objects that are added to the link. Return the bundle's bytes."""
    directory, compiler, machine = context.directory, context.compiler, context.inputs.machine
    data, size = bundle.write(directory / "bundle", made.files, made.manifest)
    write_atomic(directory / "manifest", data)
    if settled.lazy or settled.units:
        names = made.manifest.functions
        device, aliases = len(made.manifest.symbols) - len(names), aliases_of(settled, names)
        text = render_stubs(names, "manifest", machine, aliases, device_symbols=device, wrapped=wrapped)
        text += cudart.render_table(runtime) if runtime else ""
    else:
        text = render_note("manifest", machine)
    relink.assemble(directory, "stubs", text, compiler)
    if context.inputs.stays:
        relink.assemble(directory, "deferred", render_deferred(), compiler)
    return size


def wrapped_in(settled: Settled, settler: Settler, runtime: cudart.CudaRuntime | None) -> tuple[str, ...]:
    """Return the functions of GPU runtimes that this link wraps. These are the ones that the link
    or its blobs use, if any of its kernels are compiled by themselves."""
    split = [u.blob for u in settled.units] + [p.blob for p in settled.lazy if runtime and can_be(p.blob)]
    used = [of_toolchain(t).functions for t in {blob.call.toolchain for blob in split}]
    blobs = (*runtime.functions, *runtime.wrapped) if runtime else ()
    return tuple(sorted(settler.real().undefined.union(blobs).intersection(chain(*used))))


def aliases_of(settled: Settled, names: Sequence[str]) -> dict[str, str]:
    """Map each stub of `names` that is an alias to the stub with which it shares an address."""
    shown = {plain_name(s): s for s in names}
    pairs = ((p, a, t) for p in settled.lazy for a, t in zip(p.aliases[::2], p.aliases[1::2], strict=True))
    return {shown[a]: shown[t] for p, a, t in pairs if {a, t} <= frozenset(settled.owned.lazy[p.blob])}


def link_once(
    context: LinkContext, settled: Settled, demands: Demands, wrapped: Sequence[str]
) -> tuple[state.LinkState, proc.Result]:
    """Link the library. Return the link's state, which has its words, and the linker's result."""
    link, options, directory = context.link, context.options, context.directory
    has_runtime = bool(settled.lazy or settled.units)
    runtime = runtime_source() if has_runtime else None
    objects = relink.runtime_objects(directory, context.compiler, runtime, context.env) if runtime else []
    eager_names = [e.object.name for e in settled.compiled]
    demanded = replace(demands, has_blobs=bool(settled.lazy)) if has_runtime else None
    words, originals = link_words(context, eager_names, context.soname(settled.owned), demanded, wrapped)
    st = state.LinkState(
        library=context.name,
        file_name=os.path.basename(link.output),
        output=state.relative(link.output, directory),
        installed=state.relative(options.install_dir, directory),
        words=tuple(words),
        runtime=source_digest(runtime) if runtime else "",
        runtime_compiler=context.compiler,
        env=link.call.env,
        response=by_name(link.call.toolchain).response,
        keeps_root=bool(options.root),
        beside=options.beside,
    )
    return st, relink.relink(st, directory, objects, Path(link.call.cwd), context.env, originals)


def keep_link(context: LinkContext, settled: Settled, demands: Demands) -> None:
    """Keep what it takes to link the library ahead of time: `lazyck check` compares with that."""
    eager = {made.blob.output: sentence(made.reasons) for made in settled.objects}
    eager |= {blob.output: "nothing in the link needs it" for blob in settled.unneeded}
    libraries = dict(context.inputs.libraries)
    kept = tuple(elf.read_shared(libraries[i]).soname or Path(libraries[i]).name for i in demands.kept)
    save_ahead(ahead_link(context, eager, kept if settled.lazy else ()), context.directory)


def runtime_compiler(link: LinkCommand, inputs: LinkInputs, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the C++ compiler for the runtime, which is never a shim: the host toolchain's or, for
    another machine, the link's own or a cross compiler. Raises `ToolchainError`."""
    choosing = [w for item in inputs.items if item.name in _CHOOSE_TARGET for w in item.words]
    own = (*link.call.argv[: link.call.prefix], *choosing)
    return HOST.find_for(inputs.machine, env, [own] if link.call.toolchain == HOST.name else [])
