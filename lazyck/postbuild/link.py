"""One intercepted link, from its deferred objects to the lazy library: read, probe, decide, write, link."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lazyck import manifest, proc
from lazyck.command import CompileCommand, LinkCommand
from lazyck.config import runtime_source
from lazyck.files import encode, write_atomic
from lazyck.postbuild import bundle, missing, relink, state, summary, symbols
from lazyck.postbuild.describe import Description, Target, describe
from lazyck.postbuild.inputs import LinkInputs, chosen_soname, library_name, read_inputs
from lazyck.postbuild.probe import ProbeResult, Unprobed, probe
from lazyck.postbuild.reach import Demands, Reach
from lazyck.postbuild.settle import Settled, Settler
from lazyck.postbuild.stubs import render_stubs
from lazyck.postbuild.words import link_words
from lazyck.runtime.build import source_digest
from lazyck.settings import BuildSettings
from lazyck.toolchains import HOST, by_name

# Options by which a clang is a cross compiler: the runtime, too, is compiled with them.
_CHOOSE_TARGET = frozenset({"-target", "--target", "--sysroot", "--gcc-toolchain", "--gcc-install-dir"})


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
        self.walls[name] = self.walls.get(name, 0.0) + time.monotonic() - begun
        self.cpus[name] = self.cpus.get(name, 0.0) + self.cpu_so_far() - cpu

    @staticmethod
    def cpu_so_far() -> float:
        """CPU seconds of this process and of all that it waited for."""
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(u.ru_utime + u.ru_stime for u in used)


def link_lazily(
    link: LinkCommand, settings: BuildSettings, env: Mapping[str, str], say: Callable[[str], None]
) -> summary.LinkSummary:
    """Do in place of `link` what makes its output a lazy library; `say` hears of work that takes its time.

    Raises `LazyckError`.
    """
    clock = Clock()
    inputs = read_inputs(link, by_name(link.call.toolchain).table)
    directory = library_dir(link, settings)
    directory.mkdir(parents=True, exist_ok=True)
    reader = symbols.Reader(link.call.argv[: link.call.prefix], link.call.cwd, env)
    with clock.step("probe"):
        found = symbols.read_symbols(inputs, reader)
        probed = probe_blobs(inputs, found, directory, settings)
    settler = Settler(probed, found, reader, directory / "eager", settings, env)
    compiler = runtime_compiler(link, inputs, env)
    reach = Reach(inputs, probed, found.members, directory / "probe", settings.jobs, compiler, env, say)
    demands = Demands()
    while True:
        with clock.step("eager"):
            settled = settler.settle(demands.eager, demands.needed)
        with clock.step("bundle"):
            made, bundle_bytes = write(link, inputs, settled, directory, settings, compiler)
        with clock.step("link"):
            st, said = link_once(link, inputs, settled, demands, directory, settings, compiler, env)
        with clock.step("probe"):
            before = demands
            if settled.lazy:
                demands = reach.demands(directory / st.file_name, settled, settler.real(), before)
        if demands == before:
            break
    if settled.failed:
        missing.check(st, directory, settled.failed, [path for _, path in inputs.libraries], env)
    relink.repeat(said)
    state.save(st, directory)
    delivered = relink.deliver(st, directory)
    shutil.rmtree(directory / "probe", ignore_errors=True)
    write_atomic(directory / "taken", b"\0".join(encode(b.output) for b in inputs.blobs))
    done = summary.LinkSummary(
        library=st.library,
        output=link.output,
        deferred=len(inputs.blobs),
        lazy=len(settled.lazy),
        symbols=len(made.manifest.symbols),
        spare=len(settled.owned.spare),
        eager=made.manifest.eager,
        warnings=tuple(warnings(settled)),
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


def probe_blobs(inputs: LinkInputs, found: symbols.Symbols, directory: Path, settings: BuildSettings) -> ProbeResult:
    """The symbols of the link's blobs; none where blobs cannot be loaded, or what is needed of them is not known."""
    reason = ""
    if any(item.name in ("-static", "--static", "-static-pie") for item in inputs.items) and not inputs.shared:
        reason = "a statically linked program cannot load blobs at run time"
    elif found.unread:
        reason = f"the link takes LTO objects that no nm at hand can read ({os.path.basename(found.unread)})"
    if reason:
        return ProbeResult((), tuple(Unprobed(b, reason) for b in inputs.blobs), 0.0, 0)
    work = directory / "probe"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    return probe(inputs.blobs, work, jobs=settings.jobs)


def warnings(settled: Settled) -> list[str]:
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
    return found


# -- writing ---------------------------------------------------------------------------------------


def write(
    link: LinkCommand,
    inputs: LinkInputs,
    settled: Settled,
    directory: Path,
    settings: BuildSettings,
    compiler: Sequence[str],
) -> tuple[Description, int]:
    """Lay out the bundle and make stubs.o: what the library will hold, and the bundle's size in bytes."""
    name = library_name(link.output)
    root = settings.root or ("" if settings.beside else str(directory / "bundle"))
    target = Target(name, soname_for(link, inputs, settled), root, inputs.machine)
    made = describe(settled.lazy, settled.owned, link, target, settled.objects, settings)
    data = manifest.encode(made.manifest)
    size = bundle.write(directory / "bundle", made.files, data, name)
    if settled.lazy:
        hiding = {p.blob.source for p in settled.lazy if is_hiding(p.blob)}
        protected = {s for source in hiding for s in settled.owned.lazy[source]}
        names = [s for s, _ in made.manifest.symbols]
        text = render_stubs(names, "manifest", inputs.machine, protected=protected)
        assemble(directory, data, text, compiler)
    return made, size


def soname_for(link: LinkCommand, inputs: LinkInputs, settled: Settled) -> str:
    """The soname of the library that `link` makes; "" for an executable."""
    owned = (s for symbols in settled.owned.lazy.values() for s in symbols)
    return (inputs.soname or chosen_soname(link, owned)) if inputs.shared else ""


def is_hiding(blob: CompileCommand) -> bool:
    """Whether what `blob` defines is hidden in an ahead-of-time build."""
    toolchain = by_name(blob.call.toolchain)
    return toolchain.hides_symbols(toolchain.base_words(blob))


def assemble(directory: Path, manifest_data: bytes, stubs: str, compiler: Sequence[str]) -> None:
    """Make stubs.o, which holds the stubs, the slots and the manifest."""
    write_atomic(directory / "manifest", manifest_data)
    write_atomic(directory / "stubs.S", stubs.encode("utf-8", "surrogateescape"))
    argv = [*compiler, "-c", "-x", "assembler", "stubs.S", "-o", "stubs.o"]
    proc.check("assembling the stubs", argv, cwd=directory)


def link_once(
    link: LinkCommand,
    inputs: LinkInputs,
    settled: Settled,
    demands: Demands,
    directory: Path,
    settings: BuildSettings,
    compiler: tuple[str, ...],
    env: Mapping[str, str],
) -> tuple[state.LinkState, proc.Result]:
    """Link the library into `directory`: with which words, the state says; and what the linker said."""
    runtime = runtime_source() if settled.lazy else None
    objects = relink.runtime_objects(directory, compiler, runtime, env) if runtime else []
    places = bundle.Places("", dict(settings.shim_homes), library_name(link.output))
    eager_names = [e.object.name for e in settled.compiled]
    demanded = demands if settled.lazy else None
    soname = soname_for(link, inputs, settled)
    words, originals = link_words(link, inputs, eager_names, directory, places, soname, demanded)
    st = state.LinkState(
        library=library_name(link.output),
        file_name=os.path.basename(link.output),
        output=state.relative(link.output, directory),
        installed=state.relative(settings.install_dir, directory),
        words=tuple(words),
        runtime=source_digest(runtime) if runtime else "",
        runtime_compiler=compiler,
        env=link.call.env,
        response=by_name(link.call.toolchain).response,
        keeps_root=bool(settings.root),
        beside=settings.beside,
    )
    return st, relink.relink(st, directory, objects, Path(link.call.cwd), env, originals)


def runtime_compiler(link: LinkCommand, inputs: LinkInputs, env: Mapping[str, str]) -> tuple[str, ...]:
    """The C++ compiler for the runtime, never a shim: the host toolchain's, or, where the link is for another machine,
    the link's own or a cross compiler. Raises `ToolchainError`."""
    choosing = [w for item in inputs.items if item.name in _CHOOSE_TARGET for w in item.words]
    own = (*link.call.argv[: link.call.prefix], *choosing)
    return HOST.find_for(inputs.machine, env, [own] if link.call.toolchain == HOST.name else [])
