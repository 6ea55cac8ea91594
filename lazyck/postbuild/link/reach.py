"""Finds what lazily compiled blobs would miss at run time although an ahead-of-time link has it,
and what to do about it.

A blob's library finds what the main library exports and what that depends on. Three things are out
of its reach: names that the main library keeps to itself (hidden visibility, version scripts,
`--exclude-libs`), members of static archives that only blobs would pull in, and shared libraries
that only blobs use, which linkers drop under `--as-needed`.
"""

import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lazyck import abi, proc
from lazyck.errors import BuildError
from lazyck.postbuild.cxx.mangled import is_of_the_standard_library, is_private, template_of
from lazyck.postbuild.eager import EagerObject
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.objects import cudart, elf, kernels
from lazyck.postbuild.objects.offered import versioned_exports
from lazyck.postbuild.objects.reveal import private_name
from lazyck.postbuild.objects.symbols import SymbolNames
from lazyck.postbuild.objects.vtables import of_classes_with
from lazyck.postbuild.probe.group import Group, Probed
from lazyck.postbuild.probe.probe import ProbeResult
from lazyck.postbuild.reasons import Reason, ReasonKind, sentence
from lazyck.postbuild.references import TextReferences, needs_of
from lazyck.postbuild.settle import Settled
from lazyck.postbuild.state import LinkState
from lazyck.quantities import counted
from lazyck.toolchains.command import CompileCommand
from lazyck.toolchains.gpu_runtimes import GPU_RUNTIMES

# At most so many blobs are compiled to learn whether a shared library is needed. If headers are as
# large as torch's, it is one in `_SHARE` blobs.
_SAMPLE = 8
_SHARE = 32


@dataclass(frozen=True)
class Demands:
    """Lists what a link must do because blobs need it."""

    eager: Mapping[CompileCommand, Reason] = field(default_factory=dict)  # blobs to compile eagerly, and why
    needed: frozenset[str] = frozenset()  # symbols that blobs define weakly and that must have stubs
    pulled: frozenset[str] = frozenset()  # symbols whose members must be pulled out of archives
    kept: tuple[int, ...] = ()  # shared libraries to keep, as indices of the command's items
    revealed: frozenset[str] = frozenset()  # hidden symbols of objects to export
    renamed: frozenset[str] = frozenset()  # those to export under private names too
    unnamed: frozenset[str] = frozenset()  # those that cannot get a private name
    whole: bool = False  # whether blobs are compiled whole: the wrappers of a GPU runtime are out of their reach
    versions: tuple[str, ...] = ()  # what the library exports under versions, which blobs' references have, too
    has_blobs: bool = True  # kernel units use nothing of the library


class Reach:
    """Examines one link after the other until nothing is out of reach."""

    def __init__(
        self, context: LinkContext, probed: ProbeResult, references: TextReferences, members: SymbolNames
    ) -> None:
        self._context, self._inputs, self._keys = context, context.inputs, probed.keys
        self._references, self._members = references, members
        self._libraries: dict[str, elf.SharedSymbols] = {}
        self._needs = {p.blob: p.needs for p in probed.probed if p.needs is not None}

    def demands(
        self,
        library: Path,
        settled: Settled,
        real: SymbolNames,
        before: Demands,
        runtime: cudart.CudaRuntime | None = None,
    ) -> Demands:
        """Return what the link that made `library` lacks, added to what it was given `before`, if
        anything. `real` are its objects' names. Raises `LazyckError`."""
        image = elf.read_shared(library)
        stubs = {s for symbols in settled.owned.lazy.values() for s in symbols}
        handles = {k: p.blob for p in settled.lazy for k in p.kernels if k not in p.weak and not is_private(k)}
        unreachable = {s for p in settled.lazy for s in frozenset(p.unreachable).difference(p.kernels)}
        owner = image.soname or ""
        unnamed = before.unnamed.union(s for s in before.renamed if private_name(s, owner) not in image.defined)
        private = {s for p in settled.lazy for s in p.private.intersection(settled.owned.lazy[p.blob])}
        lost = {s for s in private if private_name(s, owner) not in image.defined}
        hidden = _own((real.strong | stubs | unreachable) - (image.defined.keys() - lost))
        weak_hidden = _own(real.defined - real.strong - image.defined.keys())
        hidden |= self._instances(weak_hidden) | of_classes_with(real.strong, weak_hidden)
        members = _own(self._members.strong - real.defined - stubs - image.defined.keys())
        weak = _own({s for p in settled.lazy for s in _instances(p)} - real.defined - stubs)
        eager, needed, pulled = dict(before.eager), set(before.needed), set(before.pulled)
        revealed = set(before.revealed)
        for blob, symbols in self._users(hidden | members | weak, settled).items():
            out_of_reach = (symbols & hidden & before.revealed) | (symbols & members & before.pulled)
            out_of_reach |= {s for s in symbols if s + elf.WANTED_HERE in self._needs[blob]}
            if out_of_reach:
                eager[blob] = Reason(ReasonKind.NOT_EXPORTED, min(out_of_reach))
            else:
                pulled |= symbols & members
                needed |= symbols & weak
                revealed |= symbols & (hidden | members)
        for p in settled.lazy:
            if called := revealed.intersection(p.unreachable) - real.strong:
                eager[p.blob] = Reason(ReasonKind.HIDDEN, min(called))
        for blob, symbols in self._users(frozenset(handles), settled).items():
            eager |= {handles[k]: kernels.launched(k, Path(blob.source).name, self._context.env) for k in symbols}
        whole = before.whole
        if runtime and not settled.units and self._lacks(library, image, runtime):
            whole = True
        elif runtime and runtime.table not in image.defined:
            whole = True
            if not runtime.wrapped or settled.units:
                hidden_runtime = Reason(ReasonKind.CUDART_HIDDEN)
                launching = {gpu.toolchain for gpu in GPU_RUNTIMES}
                eager |= {p.blob: hidden_runtime for p in settled.lazy if p.blob.call.toolchain in launching}
        kept = before.kept + tuple(self._dropped(library, image, settled, before.kept))
        state = (real.state | self._members.state).intersection(image.defined)
        of_objects = state | (revealed.intersection(real.defined | self._members.defined) - stubs)
        exported = frozenset(revealed), of_objects - unnamed, unnamed
        return Demands(eager, frozenset(needed), frozenset(pulled), kept, *exported, whole, versioned_exports(library))

    def _instances(self, symbols: frozenset[str]) -> frozenset[str]:
        """Return those of the weak `symbols` that no blob defines: instances declared `extern`."""
        if not symbols or not self._inputs.blobs:
            return frozenset()
        declared = self._references.declared_instances
        return frozenset(s for s in symbols if template_of(s) in declared)

    def _users(self, wanted: frozenset[str], settled: Settled) -> dict[CompileCommand, frozenset[str]]:
        """Return the lazy blobs that refer to any of `wanted`, each with what it refers to."""
        if not wanted:
            return {}
        own: dict[str, set[str]] = {}
        for p in settled.lazy:
            mine = {*p.symbols, *p.unreachable, *p.kernels}
            own[p.blob.source] = own.get(p.blob.source, mine) & mine
        lazy = dict.fromkeys(p.blob for p in settled.lazy)  # in link order
        candidates = self._references.candidates(wanted, own)
        self._compile({b: g for b, g in candidates.items() if b in lazy})
        found = {b: self._needs[b] & wanted for b in lazy if b in self._needs}
        return {b: symbols for b, symbols in found.items() if symbols}

    def _compile(self, blobs: Mapping[CompileCommand, Group]) -> None:
        """Learn what `blobs` need: from the cache, else by a compile for the host."""
        wanted = {b: g for b, g in blobs.items() if b not in self._needs}
        for key in {g.key for g in wanted.values()} - {""}:
            known = self._context.cache.answers(f"{key}-needs")
            mine = {b: self._keys[b] for b, g in wanted.items() if g.key == key and b in self._keys}
            self._needs |= {b: frozenset(known[k]) for b, k in mine.items() if k in known}
        fresh = {b: g for b, g in wanted.items() if b not in self._needs}
        if not fresh:
            return
        self._context.say(
            f"compiling {counted(len(fresh), 'blob')} for the host, to learn what the library must export"
        )
        learnt: dict[str, dict[str, list[str]]] = {}
        with ThreadPoolExecutor(max(1, self._context.options.jobs)) as pool:
            tasks = [(g, b.source, self._context.work / f"needs{i}.o") for i, (b, g) in enumerate(fresh.items())]
            for (b, g), needs in zip(fresh.items(), pool.map(lambda task: needs_of(*task), tasks), strict=True):
                self._needs[b] = needs or frozenset()
                if needs is not None and g.key and b in self._keys:
                    learnt.setdefault(g.key, {})[self._keys[b]] = sorted(needs)
        for key, found in learnt.items():
            self._context.cache.keep_answers(f"{key}-needs", found)

    def _dropped(self, library: Path, image: elf.SharedSymbols, settled: Settled, kept: tuple[int, ...]) -> list[int]:
        """Return the items of shared libraries that the linker dropped although blobs need them."""
        found = []
        provided: set[str] | None = None
        for index, path in self._inputs.libraries:
            if index in kept:
                continue
            offered = self._offered(path)
            if (offered.soname or Path(path).name) in image.needed:
                continue
            if provided is None:
                provided = set(image.defined)
                linked = [p for _, p in self._inputs.libraries]
                for other in needed_libraries(library, linked, self._context.compiler, self._context.env):
                    provided |= self._offered(str(other)).defined.keys()
            if self._is_used(_own({s for s, b in offered.defined.items() if _is_asked_for(s, b)} - provided), settled):
                found.append(index)
        return found

    def _lacks(self, library: Path, image: elf.SharedSymbols, runtime: cudart.CudaRuntime) -> bool:
        """Return whether no library that this one needs has the GPU runtime that its wrappers call.
        The build then links no runtime, for example because its HIP sources have no device code."""
        registering = {gpu.registering_as(abi.REGISTER_IMAGE) for gpu in GPU_RUNTIMES}
        wanted = image.undefined.intersection(runtime.wrapped, registering)
        if not wanted:
            return False
        linked = [p for _, p in self._inputs.libraries]
        others = needed_libraries(library, linked, self._context.compiler, self._context.env)
        return not any(wanted <= self._offered(str(other)).defined.keys() for other in others)

    def _offered(self, library: str) -> elf.SharedSymbols:
        """Return the symbols of a library that this link does not make."""
        if library not in self._libraries:
            self._libraries[library] = elf.read_shared(library)
        return self._libraries[library]

    def _is_used(self, offered: frozenset[str], settled: Settled) -> bool:
        """Return whether a blob refers to any of the symbols `offered`. This is assumed if finding
        out would cost too much."""
        lazy = {p.blob for p in settled.lazy}
        if any(self._needs[b] & offered for b in lazy if b in self._needs):
            return True
        allowed = min(_SAMPLE, len(lazy) // _SHARE) if self._references.are_large() else _SAMPLE
        if allowed == 0:
            return self._references.hold(offered)
        fresh = {b: g for b, g in self._references.candidates(offered).items() if b in lazy and b not in self._needs}
        if not fresh:
            return False
        for blob, group in list(fresh.items())[:allowed]:
            self._compile({blob: group})
            if self._needs[blob] & offered:
                return True
        return len(fresh) > allowed


def _own(symbols: set[str] | frozenset[str]) -> frozenset[str]:
    """Return those of `symbols` that other files can name, and the standard library lacks."""
    return frozenset(s for s in symbols if not is_of_the_standard_library(s) and not is_private(s))


def _is_asked_for(symbol: str, binding: str) -> bool:
    """Return whether code that uses a library's `symbol` leaves it undefined. Such code has an
    inline function or variable itself, unless that is a template's instance."""
    return binding == "GLOBAL" or not symbol.startswith("_Z") or bool(template_of(symbol))


def _instances(p: Probed) -> set[str]:
    """Return what a blob defines weakly because it instantiates a class explicitly, judged by
    names. Lambdas and templates in its members are left out, as users instantiate them too."""
    marker = "instantiation of a class: "
    if marker not in p.compiled:
        return set()
    name = p.compiled.partition(marker)[2].partition("<")[0].split()[-1].rpartition("::")[2]
    return {s for s in p.weak if template_of(s) == name}


def check_complete(
    st: LinkState, directory: Path, failed: Sequence[EagerObject], linked: Sequence[str], env: Mapping[str, str]
) -> None:
    """Raise `BuildError` if the library needs symbols that neither it nor its libraries define.
    `linked` are those that its link named.

    Only C++ names count. Blobs nearly always define C++ functions, while C names may come from the
    program that loads the library (as Python's do for an extension module). An `extern "C"` name
    counts if the source of a failed blob mentions it.
    """
    library = directory / st.file_name
    image = elf.read_shared(library)
    provided: set[str] = set()
    for path in needed_libraries(library, linked, st.runtime_compiler, env):
        provided.update(elf.read_shared(path).defined)
    candidates = sorted(image.undefined - image.weak_undefined - provided)
    sources = [e.blob.source for e in failed]
    texts = [Path(s).read_bytes() for s in sources]
    lost = [s for s in candidates if s.startswith("_Z") or any(s.encode() in t for t in texts)]
    if not lost:
        return
    lines = [f"{st.file_name}: nothing defines these symbols:", *(f"  {s}" for s in lost[:20])]
    if len(lost) > 20:
        lines.append(f"  ... and {len(lost) - 20} more")
    lines.append("and these blobs, which might, can be neither probed nor compiled:")
    lines += [f"  {e.blob.source} ({sentence(e.reasons)})" for e in failed[:20]]
    first = failed[0].error
    library.unlink()
    raise BuildError("\n".join([*lines, first.message if first else ""]), "fix the blobs named above")


def needed_libraries(
    library: Path, linked: Sequence[str], compiler: Sequence[str], env: Mapping[str, str]
) -> list[Path]:
    """Return the files that the loader would take for what `library` needs, directly or not.

    If it is for another machine, these are files of `linked`, the libraries that its link named,
    and for names that `linked` lacks those that `compiler`, a cross compiler, would link.
    """
    if elf.machine(library) == platform.machine():
        return _as_ldd_finds_them(library, env)
    by_soname = {elf.read_shared(p).soname or Path(p).name: Path(p) for p in linked}
    found: dict[str, Path] = {}
    todo = [library]
    while todo:
        for name in elf.read_shared(todo.pop()).needed:
            if name in found:
                continue
            path = by_soname.get(name) or Path(proc.run([*compiler, f"-print-file-name={name}"]).stdout.strip())
            if path.is_absolute() and path.is_file():
                found[name] = path
                todo.append(path)
    return list(found.values())


def _as_ldd_finds_them(library: Path, env: Mapping[str, str]) -> list[Path]:
    listed = proc.run(["ldd", str(library)], env=env).stdout
    paths = []
    for line in listed.splitlines():
        _, arrow, target = line.strip().partition(" => ")
        path = (target if arrow else line.strip()).rpartition(" (")[0]
        if path.startswith("/") and Path(path).is_file():
            paths.append(Path(path))
    return paths
