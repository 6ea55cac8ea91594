"""One intercepted link, from its deferred objects to the lazy library: read, probe, decide, write, link."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lazyck import manifest, proc
from lazyck.command import CompileCommand, LinkCommand
from lazyck.config import runtime_source
from lazyck.errors import BuildError
from lazyck.files import encode, write_atomic
from lazyck.postbuild import bundle, elf, missing, relink, state, summary, words
from lazyck.postbuild.describe import Target, describe
from lazyck.postbuild.eager import EagerObject, compile_eagerly
from lazyck.postbuild.inputs import LinkInputs, library_name, read_inputs
from lazyck.postbuild.ownership import NOT_NEEDED, Offer, Ownership, assign
from lazyck.postbuild.probe import ProbeResult, Unprobed, probe
from lazyck.postbuild.stubs import render_stubs
from lazyck.runtime.build import source_digest
from lazyck.settings import BuildSettings
from lazyck.toolchains import by_name


@dataclass
class Clock:
    """Wall and CPU seconds per step, the processes that it started included."""

    walls: dict[str, float] = field(default_factory=dict)
    cpus: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what runs inside."""
        begun, cpu = time.monotonic(), self.cpu_so_far()
        yield
        self.walls[name], self.cpus[name] = time.monotonic() - begun, self.cpu_so_far() - cpu

    @staticmethod
    def cpu_so_far() -> float:
        """CPU seconds of this process and of all that it waited for."""
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(u.ru_utime + u.ru_stime for u in used)


@dataclass(frozen=True)
class Symbols:
    """What the real objects of a link define and leave undefined, and which of them are LTO objects."""

    defined: frozenset[str]
    undefined: frozenset[str]
    lto: tuple[str, ...]


@dataclass(frozen=True)
class Settled:
    """Which blobs own which symbols, and the objects of the blobs that are eager."""

    owned: Ownership
    objects: tuple[EagerObject, ...]

    @property
    def compiled(self) -> list[EagerObject]:
        return [made for made in self.objects if made.error is None]

    @property
    def failed(self) -> list[EagerObject]:
        return [made for made in self.objects if made.error is not None]


def link_lazily(link: LinkCommand, settings: BuildSettings, env: Mapping[str, str]) -> summary.LinkSummary:
    """Do in place of `link` what makes its output a lazy library. Raises `LazyckError`."""
    clock = Clock()
    inputs = read_inputs(link, by_name(link.call.toolchain).table)
    directory = library_dir(link, settings)
    directory.mkdir(parents=True, exist_ok=True)
    name = library_name(link.output)
    with clock.step("probe"):
        symbols = read_symbols(inputs)
        probed = probe_blobs(inputs, symbols, directory, settings)
    with clock.step("eager"):
        settled = settle(probed, symbols, directory, settings, env)
    lazy = [p for p in probed.probed if p.blob.source in settled.owned.lazy]
    compiler = host_compiler(env)
    with clock.step("bundle"):
        soname = (inputs.soname or os.path.basename(link.output)) if inputs.shared else ""
        target = Target(name, soname, settings.root or str(directory / "bundle"))
        made = describe(lazy, settled.owned, link, target, settled.objects, settings)
        data = manifest.encode(made.manifest)
        bundle_bytes = bundle.write(directory / "bundle", made.files, data, name)
        if lazy:
            assemble(directory, data, [s for s, _ in made.manifest.symbols], compiler)
    with clock.step("link"):
        runtime = runtime_source() if lazy else None
        objects = relink.runtime_objects(directory, compiler, runtime, env) if runtime else []
        places = bundle.Places("", dict(settings.shim_homes), name)
        eager_names = [e.object.name for e in settled.compiled]
        st = state.LinkState(
            library=name,
            file_name=os.path.basename(link.output),
            output=state.relative(link.output, directory),
            installed=state.relative(settings.install_dir, directory),
            words=tuple(words.link_words(link, inputs, eager_names, directory, places, soname, bool(lazy))),
            runtime=source_digest(runtime) if runtime else "",
            runtime_compiler=compiler,
            env=link.call.env,
            response=by_name(link.call.toolchain).response,
            keeps_root=bool(settings.root),
        )
        relink.relink(st, directory, objects, Path(link.call.cwd), env)
        if settled.failed:
            missing.check(st, directory, settled.failed, env)
        state.save(st, directory)
        delivered = relink.deliver(st, directory)
    write_atomic(directory / "taken", b"\0".join(encode(b.output) for b in inputs.blobs))
    done = summary.LinkSummary(
        library=name,
        output=link.output,
        deferred=len(inputs.blobs),
        lazy=len(lazy),
        symbols=len(made.manifest.symbols),
        spare=len(settled.owned.spare),
        eager=made.manifest.eager,
        warnings=tuple(warnings(settled, inputs)),
        probe_seconds=clock.walls["probe"],
        bundle_seconds=clock.walls["bundle"],
        eager_seconds=clock.walls["eager"],
        link_seconds=clock.walls["link"],
        cpu_seconds=clock.cpu_so_far() - clock.cpus["eager"],
        peak_rss_kib=max(probed.peak_rss_kib, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss),
        library_bytes=(directory / st.file_name).stat().st_size,
        bundle_bytes=bundle_bytes,
        installed=str(delivered[-1]) if st.installed else "",
    )
    summary.save(done, directory / "summary.json")
    return done


# -- reading ---------------------------------------------------------------------------------------


def library_dir(link: LinkCommand, settings: BuildSettings) -> Path:
    """Where lazyck keeps what belongs to the library that `link` makes: readable, and one per output path."""
    tag = hashlib.sha256(encode(os.path.relpath(link.output, settings.tmp_dir))).hexdigest()[:8]
    return settings.tmp / "libs" / f"{library_name(link.output)}-{tag}"


def read_symbols(inputs: LinkInputs) -> Symbols:
    """What the real objects and archives of the link define and need.

    An archive's members count for what they leave undefined (a member that is not pulled in costs a needless stub,
    no more), but not for what they define: an object always wins over an archive's member.
    """
    defined: set[str] = set()
    undefined: set[str] = set()
    lto = []
    for path in inputs.objects:
        found = elf.read_object(path)
        defined.update(found.defined)
        undefined.update(found.undefined)
        if found.is_lto:
            lto.append(path)
    for path in inputs.archives:
        for _, member in elf.read_archive(path):
            undefined.update(member.undefined)
    return Symbols(frozenset(defined), frozenset(undefined), tuple(lto))


def probe_blobs(inputs: LinkInputs, symbols: Symbols, directory: Path, settings: BuildSettings) -> ProbeResult:
    """The symbols of the link's blobs; none where LTO objects hide what is needed of them."""
    if symbols.lto:
        reason = f"the link takes LTO objects, which hide their symbols ({os.path.basename(symbols.lto[0])})"
        return ProbeResult((), tuple(Unprobed(b, reason) for b in inputs.blobs), 0.0, 0)
    work = directory / "probe"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    return probe(inputs.blobs, work, jobs=settings.jobs)


# -- deciding --------------------------------------------------------------------------------------


def settle(
    probed: ProbeResult, symbols: Symbols, directory: Path, settings: BuildSettings, env: Mapping[str, str]
) -> Settled:
    """Which blobs stay lazy, and the objects of those that do not.

    Eager blobs are real objects: what they leave undefined can make another blob needed, so they are compiled in
    rounds: those that had to be eager first, then those whose functions real objects define too.
    """
    shutil.rmtree(directory / "eager", ignore_errors=True)
    offers = [Offer(p.blob.source, p.symbols, p.weak) for p in probed.probed]
    by_source = {p.blob.source: p.blob for p in probed.probed}
    objects: list[EagerObject] = []
    defined, undefined = set(symbols.defined), set(symbols.undefined)

    def compile_round(blobs: Sequence[tuple[CompileCommand, str]]) -> None:
        fresh = compile_eagerly(blobs, directory / "eager", env, settings.jobs)
        objects.extend(fresh)
        for made in fresh:
            if made.error is None:
                found = elf.read_object(made.object)
                defined.update(found.defined)
                undefined.update(found.undefined)

    compile_round([(u.blob, u.reason) for u in probed.eager])
    while True:
        owned = assign(offers, undefined, defined)
        reasons = {source: NOT_NEEDED for source in owned.unneeded}
        needed = undefined - defined
        for p in probed.probed:
            used = needed.intersection(p.unreachable)
            if used and p.blob.source in owned.lazy:
                reasons[p.blob.source] = f"no stub can stand for {min(used)}, which the link needs"
        if not reasons:
            return Settled(owned, tuple(objects))
        compile_round([(by_source[source], reason) for source, reason in reasons.items()])
        offers = [o for o in offers if o.source not in reasons]


def warnings(settled: Settled, inputs: LinkInputs) -> list[str]:
    """What the user should know although the library links."""
    doubles = settled.owned.doubles
    found = [
        f"{symbol} is defined by a second blob too, {source}: the first one has it" for symbol, source in doubles[:5]
    ]
    if len(doubles) > 5:
        found.append(f"... and {len(doubles) - 5} more symbols are defined by two blobs")
    found += [
        f"{e.blob.source} was left out: it can neither be probed nor compiled, and nothing undefined is left "
        f"({e.reason})"
        for e in settled.failed
    ]
    if not inputs.shared and settled.owned.lazy:
        found.append("the output is an executable: its lazily compiled blobs see only symbols that it exports")
    return found


# -- writing ---------------------------------------------------------------------------------------


def assemble(directory: Path, manifest_data: bytes, symbols: Sequence[str], compiler: Sequence[str]) -> None:
    """Make stubs.o, which holds the stubs, the slots and the manifest."""
    write_atomic(directory / "manifest", manifest_data)
    write_atomic(directory / "stubs.S", render_stubs(symbols, "manifest").encode("utf-8", "surrogateescape"))
    argv = [*compiler, "-c", "-x", "assembler", "stubs.S", "-o", "stubs.o"]
    proc.check("assembling the stubs", argv, cwd=directory)


def host_compiler(env: Mapping[str, str]) -> tuple[str, ...]:
    """The C++ compiler for the runtime: the host toolchain's, never a shim."""
    found = by_name("host").find(env)
    if found is None:
        raise BuildError("no C++ compiler found for lazyck's runtime", "install one (Debian, Ubuntu: g++) or set CXX")
    return found.compiler
