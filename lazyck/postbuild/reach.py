"""What lazily compiled blobs would not find at run time although an ahead-of-time link has it, and what to do about it.

A blob's library finds what the main library exports and what that depends on. Out of its reach are: names that the
main library keeps to itself (hidden visibility, version scripts, `--exclude-libs`), members of static archives that
only blobs would pull in, and shared libraries that only blobs use, which linkers drop under `--as-needed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lazyck.postbuild import demangle, elf
from lazyck.postbuild.inputs import LinkInputs
from lazyck.postbuild.mangled import identifiers, is_of_the_standard_library
from lazyck.postbuild.mentions import Mentions, needs_of
from lazyck.postbuild.missing import needed_libraries
from lazyck.postbuild.probe import Probed, ProbeResult
from lazyck.postbuild.probe_group import Group
from lazyck.postbuild.probe_unit import kernel_handle
from lazyck.postbuild.settle import Settled
from lazyck.postbuild.symbols import Names

_SAMPLE = 8  # blobs compiled to learn whether a shared library is needed


@dataclass(frozen=True)
class Demands:
    """What a link must do besides for blobs' sake: compile sources eagerly (with the reason), have stubs for what
    blobs define weakly, pull members out of archives, keep shared libraries (indices of the command's items)."""

    eager: Mapping[str, str] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    pulled: frozenset[str] = frozenset()
    kept: tuple[int, ...] = ()


class Reach:
    """Looks at one link after the other until nothing is out of reach."""

    def __init__(
        self,
        inputs: LinkInputs,
        probed: ProbeResult,
        members: Names,
        work: Path,
        jobs: int,
        compiler: Sequence[str],
        env: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._compiler = compiler
        self._inputs, self._members, self._work, self._jobs, self._env = inputs, members, work, jobs, env
        self._say = say
        self._mentions = Mentions(probed.texts)
        self._needs: dict[str, frozenset[str]] = {p.blob.source: p.needs for p in probed.probed if p.needs is not None}

    def demands(self, library: Path, settled: Settled, real: Names, before: Demands) -> Demands:
        """What the link that made `library` lacks, added to what it was given `before`; `real` are its objects' names.

        Equal to `before` when nothing is missing. Raises `LazyckError`.
        """
        image = elf.read_shared(library)
        stubs = {s for symbols in settled.owned.lazy.values() for s in symbols}
        handles = {kernel_handle(s) for p in settled.lazy for s in p.symbols}
        unreachable = {s for p in settled.lazy for s in p.unreachable} - handles
        hidden = _own((real.strong | stubs | unreachable) - image.defined.keys())
        hidden |= self._instances(_own(real.defined - real.strong - image.defined.keys()))
        members = _own(self._members.strong - real.defined - stubs - image.defined.keys())
        weak = _own({s for p in settled.lazy for s in _instances(p)} - real.defined - stubs)
        eager, needed, pulled = dict(before.eager), set(before.needed), set(before.pulled)
        for source, symbols in self._users(hidden | members | weak, settled).items():
            out_of_reach = (symbols & hidden) | (symbols & members & before.pulled)
            if out_of_reach:
                shown = demangle.readable(min(out_of_reach), self._env)
                eager[source] = f"needs {shown}, which {library.name} does not export"
            else:
                pulled |= symbols & members
                needed |= symbols & weak
        kept = before.kept + tuple(self._dropped(library, image, settled, before.kept))
        return Demands(eager, frozenset(needed), frozenset(pulled), kept)

    def _instances(self, symbols: frozenset[str]) -> frozenset[str]:
        """Those of the weak `symbols` that a blob would not define itself: their templates are declared `extern`."""
        if not symbols or not self._inputs.blobs:
            return frozenset()
        marks = [f"{len(name)}{name}" for name in self._mentions.declared_instances()]
        return frozenset(s for s in symbols if any(mark in s for mark in marks))

    def _users(self, wanted: frozenset[str], settled: Settled) -> dict[str, frozenset[str]]:
        """The lazy blobs that refer to any of `wanted`, and to which."""
        if not wanted:
            return {}
        names = frozenset().union(*map(identifiers, wanted))
        lazy = dict.fromkeys(p.blob.source for p in settled.lazy)  # in link order
        candidates = self._mentions.candidates(names)
        self._compile({s: g for s, g in candidates.items() if s in lazy})
        found = {s: self._needs[s] & wanted for s in lazy if s in self._needs}
        return {s: symbols for s, symbols in found.items() if symbols}

    def _compile(self, blobs: Mapping[str, Group]) -> None:
        fresh = {s: g for s, g in blobs.items() if s not in self._needs}
        if not fresh:
            return
        self._say(f"compiling {len(fresh)} blobs for the host: they may need what the library does not export")
        with ThreadPoolExecutor(max(1, self._jobs)) as pool:
            tasks = [(g, s, self._work / f"needs{i}.o") for i, (s, g) in enumerate(fresh.items())]
            for source, needs in zip(fresh, pool.map(lambda task: needs_of(*task), tasks), strict=True):
                self._needs[source] = needs or frozenset()

    def _dropped(self, library: Path, image: elf.SharedSymbols, settled: Settled, kept: tuple[int, ...]) -> list[int]:
        """The items that name shared libraries which the linker dropped although blobs need them."""
        found = []
        provided: set[str] | None = None
        for index, path in self._inputs.libraries:
            if index in kept:
                continue
            offered = elf.read_shared(path)
            if (offered.soname or Path(path).name) in image.needed:
                continue
            if provided is None:
                provided = set(image.defined)
                linked = [p for _, p in self._inputs.libraries]
                for other in needed_libraries(library, linked, self._compiler, self._env):
                    provided |= elf.read_shared(other).defined.keys()
            if self._is_used(_own(offered.defined.keys() - provided), settled):
                found.append(index)
        return found

    def _is_used(self, offered: frozenset[str], settled: Settled) -> bool:
        """Whether a blob refers to any of the symbols `offered`; taken for granted where that would cost too much."""
        lazy = {p.blob.source for p in settled.lazy}
        if any(self._needs[s] & offered for s in lazy if s in self._needs):
            return True
        names = frozenset().union(*map(identifiers, offered))
        fresh = {s: g for s, g in self._mentions.candidates(names).items() if s in lazy and s not in self._needs}
        if not fresh:
            return False
        sample = dict(list(fresh.items())[:_SAMPLE])
        self._compile(sample)
        return len(fresh) > len(sample) or any(self._needs[s] & offered for s in sample)


def _own(symbols: set[str] | frozenset[str]) -> frozenset[str]:
    return frozenset(s for s in symbols if not is_of_the_standard_library(s))


def _instances(p: Probed) -> set[str]:
    """What a blob defines weakly because it instantiates a class explicitly, as far as names tell."""
    marker = "instantiation of a class: "
    if marker not in p.compiled:
        return set()
    name = p.compiled.partition(marker)[2].partition("<")[0].split()[-1].rpartition("::")[2]
    return {s for s in p.weak if f"{len(name)}{name}I" in s}
