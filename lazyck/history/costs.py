"""The costs of earlier compiles, which the runtime records (runtime/src/cache/costs.h)."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lazyck.abi import CACHE_COSTS, EVENT_COMPILE, PROGRAMS, archs_in_name
from lazyck.directory import RefusedError, directory_below, opened_in, pass_over
from lazyck.files import write_atomic
from lazyck.history.events import Event, lines_below

_MOST_RECORDS = 500_000
_TAIL = 64 << 10
# The lines of killed compiles have a `!` and do not match. Names are spelled as in file names.
_LINE = re.compile(rb"(\d{1,12}(?:\.\d{1,9})?) (\d{1,15}) ([\w.+~-]+) ([\w.+~-]+)\n")
_UNKNOWN_NEED_KIB = 4 << 20  # the default in the runtime's store/missing.cpp


@dataclass(frozen=True)
class Costs:
    """What compiles took: seconds and KiB, by library, blob and archs, spelled as in file names."""

    seconds: Mapping[tuple[str, str, str], float]
    peak_kib: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    _of_blob: dict[tuple[str, str], float] = field(init=False, default_factory=dict, compare=False)
    _peak_of_blob: dict[tuple[str, str], int] = field(init=False, default_factory=dict, compare=False)
    _largest: dict[str, int] = field(init=False, default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for (library, blob, _), seconds in self.seconds.items():
            self._of_blob[library, blob] = seconds
        for (library, blob, _), kib in self.peak_kib.items():
            self._peak_of_blob[library, blob] = kib
            self._largest[library] = max(kib, self._largest.get(library, 0))

    def of(self, library: str, blob: str, archs: str = "") -> float | None:
        """Return the seconds that the blob took last for these archs, else for any archs. Programs,
        which share their records, are searched too. The result is None if nothing is known."""
        for shelf in (library, PROGRAMS):
            exact = self.seconds.get((shelf, blob, archs_in_name(archs)), self._of_blob.get((shelf, blob)))
            if exact is not None:
                return exact
        return None

    def need_kib(self, library: str, blob: str, archs: str = "") -> int:
        """Return the KiB that the runtime reserves for a compile: what it took before, else the
        library's largest, plus a fifth."""
        exact = self.peak_kib.get((library, blob, archs_in_name(archs)), 0)
        known = exact or self._peak_of_blob.get((library, blob), 0) or self._largest.get(library, 0)
        return known + known // 5 if known else _UNKNOWN_NEED_KIB

    def of_library(self, library: str) -> dict[str, float]:
        """Return the mean seconds of each blob of a library over the archs that are known."""
        found: dict[str, list[float]] = {}
        for (of, blob, _), seconds in self.seconds.items():
            if of == library:
                found.setdefault(blob, []).append(seconds)
        return {blob: sum(each) / len(each) for blob, each in found.items()}

    def with_events(self, events: Iterable[Event]) -> "Costs":
        """Return these costs with those of the compiles in a history, which is newer."""
        compiles = [e for e in events if e.kind == EVENT_COMPILE and not e.has_failed]
        newer = {(e.library, e.blob, archs_in_name(e.arch)): e.seconds for e in compiles}
        return Costs({key: s for key, s in self.seconds.items() if key not in newer} | newer, self.peak_kib)

    @property
    def mean(self) -> float | None:
        """The mean seconds of known compiles, as a guess for others. None if none is known."""
        return sum(self.seconds.values()) / len(self.seconds) if self.seconds else None


def read_costs(caches: Iterable[Path], libraries: Iterable[str] | None = None) -> Costs:
    """Read what these caches know of these libraries (None: of all). The first cache that knows a
    blob counts, and in it the newest line. Lines that do not parse and refused caches are skipped.
    Raises `OSError`."""
    wanted = None if libraries is None else set(libraries)
    known: dict[tuple[str, str, str], tuple[float, int]] = {}
    for cache in caches:
        found: dict[tuple[str, str, str], tuple[float, int]] = {}
        try:
            for file, line in lines_below(cache, CACHE_COSTS, wanted):
                match = _LINE.fullmatch(line or b"")
                if match and len(found) < _MOST_RECORDS:
                    found[file, match[3].decode(), match[4].decode()] = float(match[1]), int(match[2])
        except RefusedError as e:
            pass_over(cache, e)
        known = found | known
    return Costs({key: seconds for key, (seconds, _) in known.items()}, {key: kib for key, (_, kib) in known.items()})


def read_last(cache: Path, library: str, blob: str, archs: str) -> tuple[float, int] | None:
    """Return the seconds and peak KiB of a blob's last compile for these archs, with names as in
    file names, or None if the record's end does not say. Raises `OSError`."""
    try:
        with opened_in(cache, cache / CACHE_COSTS / library) as f:
            f.seek(max(0, f.seek(0, 2) - _TAIL))
            lines = f.read(_TAIL).splitlines(keepends=True)
    except (RefusedError, FileNotFoundError):
        return None
    for line in reversed(lines):
        match = _LINE.fullmatch(line)
        if match and (match[3].decode(), match[4].decode()) == (blob, archs):
            return float(match[1]), int(match[2])
    return None


def keep_guess(cache: Path, library: str, blob: str, archs: str, seconds: float, peak_kib: int) -> None:
    """Record what a compile took elsewhere, so that the next one of this blob here has an expected
    time. Nothing is recorded if the cache knows what one took or refuses it, or if `seconds` is 0:
    an entry does without. Names are spelled as in file names."""
    with contextlib.suppress(RefusedError, OSError), directory_below(cache, Path(CACHE_COSTS), makes=True) as costs:
        if seconds > 0 and not read_last(cache, library, blob, archs):
            costs.append(library, f"{seconds:.3f} {peak_kib} {blob} {archs}\n".encode())


def write_shipped(path: Path, costs: Costs, keys: Iterable[tuple[str, str, str]]) -> int:
    """Write the costs of these blobs to `path`, a file of a bundle, and keep what it says of
    others. Returns the number of its lines. Raises `OSError`."""
    lines: dict[tuple[str, str], str] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines(keepends=True):
            if match := _LINE.fullmatch(line):
                lines[match[3].decode("ascii"), match[4].decode("ascii")] = line.decode("ascii").rstrip()
    for key in keys:
        if key in costs.seconds:
            lines[key[1:]] = f"{costs.seconds[key]:.3f} {costs.peak_kib.get(key, 0)} {key[1]} {key[2]}"
    write_atomic(path, "".join(f"{line}\n" for _, line in sorted(lines.items())).encode())
    return len(lines)
