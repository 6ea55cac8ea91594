"""Compiles the probe units of a cluster of blobs, and isolates blobs whose code fails."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lazyck.postbuild.cxx.declaration_kinds import Declaration
from lazyck.postbuild.cxx.includes import HeaderReach
from lazyck.postbuild.cxx.lexer import without_bodies
from lazyck.postbuild.objects.elf import open_image
from lazyck.postbuild.probe import preprocess, probe_unit
from lazyck.postbuild.probe.group import Answer, Group, first_error

_COMPILES = 8  # per cluster, plus one for every 8 blobs; what is left then is compiled blob by blob
_FEW = 8  # a unit that fails twice is split if more than one in this many blobs fails
_AT_ERROR = re.compile(r"^(\S[^\n:(]*)[:(]\d+[:,)][^\n]*?\berror\b", re.MULTILINE)


@dataclass
class _Attempt:
    blobs: dict[int, list[Declaration]]
    retries: int = 1  # how often the unit may still fail because of many of them
    by_text: bool = True  # made from preprocessed headers: those of the whole cluster, or, if `apart`, these blobs'
    apart: bool = False


class Solver:
    """Compiles a cluster's probe unit, and isolates blobs that fail. Blobs are indices of
    `sources`, of which `read` is a preprocessed batch. `forget` are the macros to take back after
    each. `preludes` is, per blob, the text that reads its headers. `shared` are all headers."""

    def __init__(
        self,
        group: Group,
        work: Path,
        sources: Sequence[str],
        forget: Mapping[str, set[str]],
        preludes: Mapping[int, str],
        shared: Collection[str],
        read: Path,
    ) -> None:
        self._group, self._work, self._sources, self._forget = group, work, sources, forget
        self._preludes, self._shared, self._read = preludes, shared, read
        self._left = _COMPILES + len(preludes) // 8
        self._by_reference: set[int] = set()
        self.found: dict[int, Answer] = {}
        self.failed: dict[int, str] = {}

    def solve(self, blobs: dict[int, list[Declaration]]) -> None:
        queue = [_Attempt(blobs)]
        while queue:
            attempt = queue.pop()
            if attempt.blobs and self._left == 0:
                self.failed |= dict.fromkeys(attempt.blobs, "the probe does not compile")
            elif attempt.blobs:
                self._left -= 1
                queue += self._attempt(attempt)

    def _attempt(self, attempt: _Attempt) -> list[_Attempt]:
        blobs = attempt.blobs
        source, output = self._work / f"probe{self._group.suffix}", self._work / "probe.o"
        preludes = list(dict.fromkeys(self._preludes[b] for b in blobs))
        how = self._group.text_compile(source, output) if attempt.by_text else None
        text = self._headers(blobs, apart=attempt.apart) if how else None
        if attempt.by_text and text is None:
            attempt, how = replace(attempt, by_text=False), None
        unit = probe_unit.render(blobs, preludes if text is None else [text], self._by_reference)
        group = self._group
        readable = group.toolchain.readable(unit.text) if how else unit.text
        source.write_text(readable, encoding="utf-8", errors="surrogateescape")
        result = group.run(how.argv) if how else group.compile(source, output, group.all_errors)
        if result.status == 0:
            for b, found in probe_unit.read_back(open_image(output), unit, how).items():
                if isinstance(found, str):
                    self.failed[b] = found
                else:
                    self.found[b] = found
            output.unlink()
            return []
        said = result.stdout + result.stderr
        blamed, is_prelude = probe_unit.blame(unit, said)
        why = "the probe does not compile: " + first_error(said)
        if len(preludes) > 1:
            # The headers conflict, which may cause errors in blobs.
            families = self._families(blobs, {os.path.join(self._group.cwd, f) for f in _AT_ERROR.findall(said)})
            if len(families) > 1:
                return [_Attempt(family, apart=True) for family in families]
        bad = blamed & blobs.keys()
        if attempt.by_text and (not bad or any(not f.startswith("lazyck-") for f in _AT_ERROR.findall(said))):
            return [replace(attempt, by_text=not attempt.apart, apart=True)]
        instances = {b for b in bad - self._by_reference if any(d.reference for d in blobs[b])}
        if instances:
            by_reference = {b for b, ds in blobs.items() if any(d.reference for d in ds)}
            # A pointer to a kernel is one to its handle, not to the function that launches it.
            of_kernels = {b for b in by_reference if any(map(probe_unit.instantiates_a_kernel, blobs[b]))}
            self.failed |= dict.fromkeys(of_kernels, "instantiates a kernel that its headers declare")
            self._by_reference |= by_reference
            return [replace(attempt, blobs={b: d for b, d in blobs.items() if b not in of_kernels})]
        falls_apart = attempt.retries == 0 and (not bad or len(bad) * _FEW > len(blobs))
        if len(blobs) == 1 or falls_apart or (is_prelude and len(preludes) == 1):
            self.failed |= dict.fromkeys(blobs, why)
            return []
        if bad and not is_prelude:
            right = {b: d for b, d in blobs.items() if b not in bad}
            if attempt.retries and right:  # two that do not go together may each go with others
                return [
                    replace(attempt, blobs={b: blobs[b] for b in sorted(bad)}, retries=0),
                    replace(attempt, blobs=right, retries=0),
                ]
            self.failed |= dict.fromkeys(bad, why)
            return [replace(attempt, blobs=right, retries=0)]
        return [replace(attempt, blobs=half, retries=0) for half in self._halves(blobs, preludes)]

    def _headers(self, blobs: Collection[int], *, apart: bool) -> str | None:
        """Return the headers that the `blobs`, and unless `apart` all others, read, as one
        preprocessed text without the bodies of functions. Return None if they do not preprocess."""
        read = self._read
        if apart:
            batch, read = self._work / f"some{self._group.suffix}", self._work / "some.ii"
            text, _ = preprocess.render_batch([s for i, s in enumerate(self._sources) if i in blobs], self._forget)
            if self._group.preprocess(batch, read, text).status != 0:
                return None
        lines: list[str] = []
        preprocess.split(read, self._group.sources, self._group.cwd, others=lines)
        return without_bodies("".join(lines))

    @cached_property
    def _reach(self) -> HeaderReach:
        """Return which headers, as far as their names tell, each source reads."""
        return HeaderReach(frozenset(self._shared), self._sources, lambda file: False, guesses=True)

    def _families(self, blobs: dict[int, list[Declaration]], at_error: set[str]) -> list[dict[int, list[Declaration]]]:
        """Split `blobs` by which of the headers `at_error` they read. Blobs that share one stay
        together. So do blobs that read none: the compiler read their family first."""
        families: list[tuple[frozenset[str], dict[int, list[Declaration]]]] = []
        for b, declarations in blobs.items():
            read = self._reach.of(self._sources[b]) & at_error
            alike = [f for f in families if f[0] & read or f[0] == read]
            families = [f for f in families if f not in alike]
            members = {k: d for _, family in alike for k, d in family.items()} | {b: declarations}
            families.append((read.union(*(names for names, _ in alike)), members))
        return [members for _, members in families]

    def _halves(
        self, blobs: dict[int, list[Declaration]], preludes: list[str]
    ) -> tuple[dict[int, list[Declaration]], dict[int, list[Declaration]]]:
        """Return two halves of `blobs`, split by headers if these differ."""
        if len(preludes) > 1:
            first = set(preludes[: len(preludes) // 2])
            chosen = {b for b in blobs if self._preludes[b] in first}
        else:
            chosen = set(list(blobs)[: len(blobs) // 2])
        return {b: d for b, d in blobs.items() if b in chosen}, {b: d for b, d in blobs.items() if b not in chosen}
