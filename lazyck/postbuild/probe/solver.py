"""Compiles the probe units of a cluster of blobs, and isolates blobs whose code fails."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lazyck.postbuild.cxx.declaration_kinds import Declaration
from lazyck.postbuild.cxx.instances import Instances
from lazyck.postbuild.cxx.lexer import without_bodies
from lazyck.postbuild.objects.elf import open_image
from lazyck.postbuild.probe import preprocess, probe_unit, real_object
from lazyck.postbuild.probe.group import Answer, Group, first_error

_COMPILES = 8  # per cluster, plus one for every 8 blobs; what is left then is compiled blob by blob
_FEW = 8  # a unit that fails twice is split if more than one in this many blobs fails
_CONSTRUCTOR = re.compile(r"(?:__attribute__\s*\(\(|\[\[)[^;{}]*?\b(?:__)?(?:con|de)structor")
_AT_ERROR = re.compile(r"^(\S[^\n:(]*)[:(]\d+[:,)][^\n]*?\berror\b", re.MULTILINE)


@dataclass
class _Attempt:
    blobs: dict[int, list[Declaration]]
    retries: int = 1  # how often the unit may still fail because of many of them
    by_text: bool = True  # made from preprocessed headers


class Solver:
    """Compiles a cluster's probe unit, and isolates blobs that fail. Blobs are indices of
    `sources`, all of which read the same headers: by the directives `prelude`, and as the
    preprocessed batch `read` has them. These instantiate `shared` explicitly."""

    def __init__(
        self, group: Group, work: Path, sources: Sequence[str], prelude: str, read: Path, shared: Instances
    ) -> None:
        self._group, self._work, self._prelude, self._read, self._shared = group, work, prelude, read, shared
        self._left = _COMPILES + len(sources) // 8
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
        blobs, group = attempt.blobs, self._group
        source, output = self._work / f"probe{group.suffix}", self._work / "probe.o"
        by_text = attempt.by_text and not self._has_constructors
        how = group.text_compile(source, output) if by_text else None
        unit = probe_unit.render(blobs, self._headers if how else self._prelude, self._by_reference)
        readable = group.toolchain.readable(unit.text) if how else unit.text
        source.write_text(readable, encoding="utf-8", errors="surrogateescape")
        result = group.run(how.argv) if how else group.compile(source, output, group.all_errors)
        if result.status == 0:
            image = open_image(output)
            table = image.symbols()
            if reason := real_object.of_headers(image, table):
                self.found |= dict.fromkeys(blobs, Answer(eager=reason))
                return []
            for b, found in probe_unit.read_back(image, table, unit, self._shared, how).items():
                if isinstance(found, str):
                    self.failed[b] = found
                else:
                    self.found[b] = found
            output.unlink()
            return []
        said = result.stdout + result.stderr
        blamed, is_prelude = probe_unit.blame(unit, said)
        bad = blamed & blobs.keys()
        if how and (not bad or any(not f.startswith("lazyck-") for f in _AT_ERROR.findall(said))):
            return [replace(attempt, by_text=False)]
        instances = {b for b in bad - self._by_reference if any(d.reference for d in blobs[b])}
        if instances:
            by_reference = {b for b, ds in blobs.items() if any(d.reference for d in ds)}
            # A pointer to a kernel is one to its handle, not to the function that launches it.
            of_kernels = {b for b in by_reference if any(map(probe_unit.instantiates_a_kernel, blobs[b]))}
            self.failed |= dict.fromkeys(of_kernels, "instantiates a kernel that its headers declare")
            self._by_reference |= by_reference
            return [replace(attempt, blobs={b: d for b, d in blobs.items() if b not in of_kernels})]
        why = "the probe does not compile: " + first_error(said)
        falls_apart = attempt.retries == 0 and (not bad or len(bad) * _FEW > len(blobs))
        if len(blobs) == 1 or falls_apart or is_prelude:
            self.failed |= dict.fromkeys(blobs, why)
            return []
        once = replace(attempt, retries=0)
        if not bad:
            every, half = list(blobs.items()), len(blobs) // 2
            return [replace(once, blobs=dict(part)) for part in (every[:half], every[half:])]
        right = {b: d for b, d in blobs.items() if b not in bad}
        if attempt.retries and right:  # two that do not go together may each go with others
            return [replace(once, blobs={b: blobs[b] for b in sorted(bad)}), replace(once, blobs=right)]
        self.failed |= dict.fromkeys(bad, why)
        return [replace(once, blobs=right)]

    @cached_property
    def _has_constructors(self) -> bool:
        """Return whether a header may have a function that runs at load, whose body then counts."""
        text = preprocess.read_source(self._read)
        return "structor" in text and _CONSTRUCTOR.search(text) is not None

    @cached_property
    def _headers(self) -> str:
        """Return all headers as one preprocessed text without the bodies of functions."""
        return without_bodies(preprocess.headers_in(self._read, self._group.sources, self._group.cwd)[1])
