"""Which blobs of a link stay lazy, and the objects of those that do not."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck.command import CompileCommand
from lazyck.postbuild import symbols
from lazyck.postbuild.eager import EagerObject, compile_eagerly
from lazyck.postbuild.ownership import Offer, Ownership, assign
from lazyck.postbuild.probe import Probed, ProbeResult
from lazyck.settings import BuildSettings


@dataclass(frozen=True)
class Settled:
    """Which blobs own which symbols, the blobs that are lazy, and the objects of those that are eager."""

    owned: Ownership
    lazy: tuple[Probed, ...]
    objects: tuple[EagerObject, ...]

    @property
    def compiled(self) -> list[EagerObject]:
        return [made for made in self.objects if made.error is None]

    @property
    def failed(self) -> list[EagerObject]:
        return [made for made in self.objects if made.error is not None]


class Settler:
    """Decides about the blobs of one link; what was compiled for one answer is kept for the next."""

    def __init__(
        self,
        probed: ProbeResult,
        found: symbols.Symbols,
        reader: symbols.Reader,
        directory: Path,
        settings: BuildSettings,
        env: Mapping[str, str],
    ) -> None:
        self._probed, self._reader, self._directory = probed, reader, directory
        self._settings, self._env = settings, env
        shutil.rmtree(directory, ignore_errors=True)
        self._objects: dict[str, EagerObject] = {}
        self._names: list[symbols.Names] = [found.objects, symbols.Names(undefined=found.members.undefined)]

    def settle(self, eager: Mapping[str, str], needed: frozenset[str]) -> Settled:
        """What is lazy if the sources of `eager` (source to reason) are not, and blobs need the symbols `needed`.

        Eager blobs are real objects: what they leave undefined can make another blob needed, so they are compiled in
        rounds: those that had to be eager first, then those whose functions real objects define too.
        """
        by_source = {p.blob.source: p for p in self._probed.probed}
        self._compile([(u.blob, u.reason) for u in self._probed.eager])
        self._compile([(by_source[source].blob, reason) for source, reason in eager.items()])
        offers = [Offer(p.blob.source, p.symbols, p.weak) for p in self._probed.probed]
        while True:
            offers = [o for o in offers if o.source not in self._objects]
            real = symbols.together(self._names)
            owned = assign(offers, real.undefined | needed, real.defined)
            reasons = dict(owned.unneeded)
            left = (real.undefined | needed) - real.defined
            for source in owned.lazy:
                used = left.intersection(by_source[source].unreachable)
                if used:
                    reasons[source] = f"no stub can stand for {min(used)}, which the link needs"
            if not reasons:
                lazy = tuple(by_source[o.source] for o in offers)
                return Settled(owned, lazy, tuple(self._objects.values()))
            self._compile([(by_source[source].blob, reason) for source, reason in reasons.items()])

    def real(self) -> symbols.Names:
        """The names of the link's objects and of the eager blobs' objects."""
        return symbols.together(self._names)

    def _compile(self, blobs: Sequence[tuple[CompileCommand, str]]) -> None:
        fresh = [(blob, reason) for blob, reason in blobs if blob.source not in self._objects]
        if not fresh:
            return
        for made in compile_eagerly(fresh, self._directory, self._env, self._settings.jobs):
            self._objects[made.blob.source] = made
            if made.error is None:
                self._names.append(self._reader.object(str(made.object)) or symbols.Names())
