"""Turns one intercepted link into the lazy library."""

import contextlib
import hashlib
import os
import resource
import shutil
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from lazyck import proc, waiting
from lazyck.abi import Role
from lazyck.errors import BuildError
from lazyck.files import encode, write_atomic
from lazyck.postbuild import link_rules, state, summary
from lazyck.postbuild.archives import Archives
from lazyck.postbuild.build_options import BuildOptions
from lazyck.postbuild.decide import Given, decide
from lazyck.postbuild.describe import downgrade
from lazyck.postbuild.eager import BY_KERNEL
from lazyck.postbuild.facts import Demands, Facts, Plan, Settled
from lazyck.postbuild.link import early, relink
from lazyck.postbuild.link.arguments import ahead_link, save_ahead
from lazyck.postbuild.link.observe import check_complete
from lazyck.postbuild.link.steps import Steps
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.mentions import Mentions
from lazyck.postbuild.objects import cudart, elf, symbols
from lazyck.postbuild.objects.inputs import (
    LinkInputs,
    is_library,
    is_source,
    library_name,
    read_inputs,
)
from lazyck.postbuild.probe.probe import ProbeResult, cpu_seconds, probe
from lazyck.postbuild.probe_cache import PROBE_CACHE, ProbeCache
from lazyck.postbuild.reasons import Reason, ReasonKind, of_pair, sentence
from lazyck.quantities import counted
from lazyck.settings.environment import runtime_source
from lazyck.toolchains import HOST, by_name
from lazyck.toolchains.command import CompileCommand, LinkCommand
from lazyck.toolchains.gpu_runtimes import of_toolchain
from lazyck.toolchains.linker_options import LinkerItem

# These options make clang a cross compiler. The runtime is compiled with them too.
_CHOOSE_TARGET = frozenset({"-target", "--target", "--sysroot", "--gcc-toolchain", "--gcc-install-dir"})


_OF_LINKS = frozenset({Role.OUTPUT, Role.LINKER, Role.LIBRARY, Role.LIBRARY_DIR})
_OF_COMPILES = frozenset(r for r in Role if r.name.startswith("INCLUDE")) | {*_OF_LINKS, Role.FLAG, Role.STATIC}

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
    walls: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    cpus: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        begun, cpu = time.monotonic(), cpu_seconds()
        with waiting.saying(f"{self.library}: {_SAID[name]}"):
            yield
        self.walls[name] += time.monotonic() - begun
        self.cpus[name] += cpu_seconds() - cpu


def link_lazily(
    link: LinkCommand, options: BuildOptions, env: Mapping[str, str], say: Callable[[str], None]
) -> summary.LinkSummary:
    """Make the output of `link` a lazy library, in place of the link itself. Raises `LazyckError`.

    Everything is made in a directory of its own, which replaces the last build's directory at the
    end. If this link fails, the library of the last build therefore still finds its bundle.
    """
    clock = Clock(os.path.basename(link.output))
    final = library_dir(link, options)
    directory = state.staging(final)
    link = with_objects(link, directory, env)
    inputs = read_inputs(link, by_name(link.call.toolchain).table)
    check_sources(inputs.blobs)
    compiler = runtime_compiler(link, inputs, env)
    cache = ProbeCache(options.tmp / PROBE_CACHE)
    context = LinkContext(link, inputs, options, env, final, directory, compiler, cache, say)
    reader = symbols.SymbolReader(link.call.argv[: link.call.prefix], link.call.cwd, env)
    with clock.step("probe"), runtime_meanwhile(context):
        found = symbols.read_symbols(inputs, reader)
        archive, probed = static_runtime(context, probe_blobs(context, found))
    mentions = Mentions(probed.texts)
    archives = Archives(inputs, probed, found, mentions, link.call.argv[: link.call.prefix])
    functions = found.objects.strong & found.objects.functions
    standard = early.replaced(functions.union(*(p.firm for p in probed.probed)), directory, compiler, env)
    given = Given(context, probed, found, mentions, archives, early.known(options.tmp, final), standard)
    steps = Steps(given, archive, reader, clock.step)
    facts, plan = Facts(), decide(given, Facts(), steps.runtime_of)
    while steps.linked is None or steps.linked.plan != plan:
        before, facts = facts, steps.carry_out(plan, facts)
        assert steps.linked or len(facts) > len(before), "a step that is no link shows something"
        plan = decide(given, facts, steps.runtime_of)
    return finish(context, plan, steps, probed, clock)


def finish(context: LinkContext, plan: Plan, steps: Steps, probed: ProbeResult, clock: Clock) -> summary.LinkSummary:
    """Deliver the library that was linked, and keep what it takes to link it again."""
    settled, linked, made = plan.settled, steps.linked, steps.made
    assert settled and linked and made
    inputs, options, directory, final = context.inputs, context.options, context.directory, context.final
    st = linked.state
    if settled.failed:
        check_complete(st, directory, settled.failed, [path for _, path in inputs.libraries], context.env)
    relink.repeat(linked.said)
    relink.check_places(st, final)
    for scratch in ("probe", "proof"):
        shutil.rmtree(directory / scratch, ignore_errors=True)
    context.cache.tidy()
    write_atomic(directory / "taken", b"\0".join(encode(b.output) for b in inputs.blobs))
    state.save(st, directory)
    keep_link(context, settled, plan.demands)
    state.commit(directory, final)
    delivered = relink.deliver(st, final)
    done = summary.LinkSummary(
        library=st.library,
        output=context.link.output,
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
        bundle_bytes=steps.bundle_bytes,
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


def check_sources(blobs: Iterable[CompileCommand]) -> None:
    """Raise `BuildError` if the source of a blob is no longer what was compiled: what is compiled
    later would be another text."""
    for blob in blobs:
        if blob.content and os.path.isfile(blob.source):
            text = Path(blob.source).read_bytes()
            if blob.content != f"{len(text)}:{zlib.crc32(text):08x}":
                raise BuildError(
                    f"{blob.source}: it has changed since it was compiled to {blob.output}, and a lazy library is made "
                    "of what it is now",
                    "compile it again; if the build itself changes the file after it has compiled it, keep it out of "
                    "--blobs",
                )


def with_objects(link: LinkCommand, directory: Path, env: Mapping[str, str]) -> LinkCommand:
    """Return `link` with an object in place of each source that its command names: what the link
    takes can then be read. The driver compiles them in `directory`, as it would in the link. One
    that writes more than the object stays a source. Raises `LinkError`."""
    call = link.call
    items = by_name(call.toolchain).table.split(call.argv[call.prefix :])
    if call.toolchain != HOST.name or any(item.name and item.role not in _OF_COMPILES for item in items):
        return link
    options = [w for i in items if i.name and i.role not in _OF_LINKS for w in i.words]
    words = list(call.argv[: call.prefix])
    for number, item in enumerate(items):
        if item.name or not is_source(item.words[0]):
            words += item.words
            continue
        made = str(directory / f"source{number}-{os.path.basename(item.words[0])}.o")
        argv = [*words[: call.prefix], *options, "-c", item.words[0], "-o", made]
        result = proc.run(argv, cwd=call.cwd, env=proc.anchored({**env, **dict(call.env)}, call.cwd))
        if result.status != 0:
            raise relink.failed(f"compile of {item.words[0]}", argv, result, directory)
        relink.repeat(result)
        words.append(made)
    return replace(link, call=replace(call, argv=tuple(words)))


def library_dir(link: LinkCommand, options: BuildOptions) -> Path:
    """Return where lazyck keeps what belongs to the library that `link` makes. The name is
    readable, and there is one directory per output path."""
    tag = hashlib.sha256(encode(os.path.relpath(link.output, options.tmp_dir))).hexdigest()[:8]
    return options.tmp / "libs" / f"{library_name(link.output)}-{tag}"


def probe_blobs(context: LinkContext, found: symbols.LinkSymbols) -> ProbeResult:
    """Probe the symbols of the link's blobs. All blobs are left unprobed if the program cannot load
    blobs, or if it is not known what real objects need."""
    inputs, options = context.inputs, context.options
    reason = link_rules.unrepeated(inputs)
    names = {item.name or item.words[0] for item in inputs.items if not isinstance(item, LinkerItem)}
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
    by_kernel |= link_rules.wrapping_launches(inputs)
    blobs = [b for b in inputs.blobs if b not in by_kernel]
    found_out = probe(blobs, context.work, context.cache, jobs=options.jobs)
    return replace(found_out, eager={**found_out.eager, **by_kernel})


def lacks_defaults(inputs: LinkInputs, names: Set[str]) -> bool:
    """Return whether options among `names` leave out libraries or start files that the runtime
    needs, and the command does not name them itself, as libtool's commands for C++ do."""
    named = {item.value for item in inputs.items if is_library(item)}
    libraries: set[str] = set()
    if names & {"-nostdlib", "-nodefaultlibs"}:
        libraries = {"stdc++", "gcc_s", "c"}
    elif "-nolibc" in names:
        libraries = {"c"}
    begins = any("crtbegin" in os.path.basename(path) for path in inputs.objects)  # it defines `__dso_handle`
    return not libraries <= named or (bool(names & {"-nostdlib", "-nostartfiles"}) and not begins)


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
    found = [
        f"{e.blob.source} was left out: it can be neither probed nor compiled, and no symbol is undefined without it "
        f"({sentence(e.reasons)})"
        for e in settled.failed
    ]
    if later := written_later(settled):
        count = counted(len(later), "header was", "headers were")
        example = f"for example {min(later)}: the library is made of what it says now"
        found.append(f"{count} written after a blob that may read it was compiled, {example}")
    return found


def written_later(settled: Settled) -> set[str]:
    """Return the headers that are newer than the deferred object of a blob that may read them."""
    oldest: dict[frozenset[str], int] = {}
    for p in settled.lazy:
        with contextlib.suppress(OSError):
            made = os.stat(p.blob.output).st_mtime_ns
            oldest[p.headers] = min(made, oldest.get(p.headers, made))
    found: set[str] = set()
    for headers, made in oldest.items():
        for header in headers:
            with contextlib.suppress(OSError):
                found.update([header] if os.stat(header).st_mtime_ns > made else ())
    return found


def runtime_compiler(link: LinkCommand, inputs: LinkInputs, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the C++ compiler for the runtime, which is never a shim: the host toolchain's or, for
    another machine, the link's own or a cross compiler. Raises `ToolchainError`."""
    choosing = [w for item in inputs.items if item.name in _CHOOSE_TARGET for w in item.words]
    own = (*link.call.argv[: link.call.prefix], *choosing)
    return HOST.find_for(inputs.machine, env, [own] if link.call.toolchain == HOST.name else [])


def keep_link(context: LinkContext, settled: Settled, demands: Demands) -> None:
    """Keep what it takes to link the library ahead of time: `lazyck check` compares with that."""
    eager = {made.blob.output: sentence(made.reasons) for made in settled.objects}
    eager |= {blob.output: "nothing in the link needs it" for blob in settled.unneeded}
    needed = elf.read_shared(context.directory / os.path.basename(context.link.output)).needed
    kept = (*(elf.needed_as(path, needed) for path in demands.kept), *sorted(demands.only_named))
    save_ahead(ahead_link(context, eager, kept if settled.lazy else ()), context.directory)
