"""What compiles took before, as the runtime records it in a cache (the format stands in `runtime/src/costs.h`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lazyck.prebuild.entries import Entry

_LINE = re.compile(r"(?P<seconds>\d+(?:\.\d+)?) (?P<kib>\d+) (?P<blob>[^!].*)")  # not of one that was killed


@dataclass(frozen=True)
class Costs:
    """Seconds that compiles took, by (library, blob) as file names spell them."""

    seconds: Mapping[tuple[str, str], float]

    def of(self, entry: Entry) -> float | None:
        """What this entry's blob took last time, for whichever archs."""
        return self.seconds.get(_key(entry))

    @property
    def mean(self) -> float | None:
        """Of all that are known: the guess for the others."""
        return sum(self.seconds.values()) / len(self.seconds) if self.seconds else None


def decode(text: str) -> dict[str, float]:
    """Blob → seconds; the newest line of a blob counts, and lines that do not parse are passed over."""
    found = (_LINE.fullmatch(line) for line in text.split("\n"))
    return {f["blob"]: float(f["seconds"]) for f in found if f and float(f["seconds"]) > 0}


def read_costs(entries: Iterable[Entry], caches: Iterable[Path]) -> Costs:
    """The costs that any of the caches knows of these entries' libraries; of two the first."""
    known: dict[tuple[str, str], float] = {}
    libraries = sorted({e.path.parents[1].name for e in entries})
    for cache in caches:
        for library in libraries:
            try:
                text = (cache / ".costs" / library).read_text(errors="surrogateescape")
            except OSError:
                continue  # without records there is no estimate
            for blob, seconds in decode(text).items():
                known.setdefault((library, blob), seconds)
    return Costs(known)


def _key(entry: Entry) -> tuple[str, str]:
    # the entry's own file name spells the blob as the record does: <blob>-<16 digits>.so
    return entry.path.parents[1].name, entry.path.stem.rpartition("-")[0]
