"""Reads the data of a report: history, traces, costs, and what the cache holds."""

import re
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lazyck import abi
from lazyck.directory import read_leaves
from lazyck.errors import LazyckError, UsageError
from lazyck.formats.layout import ENTRY
from lazyck.formats.manifest import Manifest
from lazyck.history.costs import read_costs
from lazyck.history.events import merge, read_history, read_trace
from lazyck.quantities import parse_age
from lazyck.report import figures
from lazyck.report.failures import ReportedFailure, failures, with_advice
from lazyck.settings.environment import cache_dir


@dataclass(frozen=True)
class Report:
    """Everything that the page shows. `made` is in seconds since 1970. `passed_over` is the number
    of lines in the history that did not parse."""

    made: float
    cache: str
    library: str
    summary: figures.Summary
    blobs: tuple[figures.BlobCost, ...]
    failures: tuple[ReportedFailure, ...]
    coverage: tuple[figures.BuildCoverage, ...]
    growth: tuple[tuple[float, int], ...]
    runs: tuple[figures.ActivePeriod, ...]
    lanes: tuple[figures.Lane, ...]
    passed_over: int


def gather(
    cache: Path | None,
    traces: Sequence[Path],
    since: str,
    library: str,
    manifests: Sequence[Manifest],
    env: Mapping[str, str],
) -> Report:
    """Return the report on `cache` (None: the user's own), which may have no history yet.

    Raises `LazyckError` if a given cache does not exist, if its history has no valid line, or if
    nothing in it is of this library and period.
    """
    place = cache or cache_dir(env)
    if place is None:
        raise UsageError("no cache: neither HOME, XDG_CACHE_HOME nor LAZYCK_CACHE_DIR is set", "give --cache DIR")
    made = time.time()
    begin = since_time(since, made)
    found = merge([read_history(place), *map(read_trace, traces)])
    if not found.events and cache is not None and not place.is_dir():
        raise LazyckError(f"{place}: no such cache", "call a lazy library first, or give another --cache DIR")
    if not found.events and found.passed_over:
        raise LazyckError(
            f"{place / abi.CACHE_HISTORY}: none of its {found.passed_over} lines is an event",
            "remove it; a new one begins with the next compile",
        )
    chosen = tuple(e for e in found.events if e.start + e.seconds >= begin and library in ("", e.library))
    if found.events and not chosen:
        known = ", ".join(sorted({e.library for e in found.events})[:10])
        raise LazyckError(
            f"{place}: none of {len(found.events)} events is of this library and period",
            f"libraries in it: {known}; without --since and --library all are reported",
        )
    costs = read_costs([place]).with_events(found.events)  # a blob's cost may be known from before the period
    return Report(
        made=made,
        cache=str(place),
        library=library,
        summary=figures.summarize(chosen, costs, *cache_size(place), made),
        blobs=tuple(figures.blob_costs(chosen)),
        failures=tuple(with_advice(failures(chosen), place)),
        coverage=tuple(figures.coverage(m, costs) for m in manifests),
        growth=tuple(figures.growth(chosen)),
        runs=tuple(figures.runs(chosen)),
        lanes=tuple(figures.lanes(chosen)),
        passed_over=found.passed_over,
    )


def since_time(text: str, now: float) -> float:
    """Return the seconds since 1970 of "90m", "12h", "7d", "2026-01-31" or "2026-01-31T08:00"
    (local time), and 0 for an empty string. Raises `UsageError`."""
    if not text:
        return 0.0
    if re.fullmatch(r"\d{1,6}[smhdw]", text):
        return now - parse_age(text, "--since")
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromisoformat(text).timestamp()
    raise UsageError(f"--since {text}: not a time", "give an age, such as 90m, 12h or 7d, or a date: 2026-01-31")


def cache_size(cache: Path) -> tuple[int, int]:
    """Return the number of entries in a cache, and their bytes. Raises `RefusedError` for a cache
    that the runtime refuses."""
    infos = [leaf.status(name) for leaf in read_leaves(cache) for name in leaf.names() if name.endswith(ENTRY)]
    sizes = [i.st_size for i in infos if i is not None and stat.S_ISREG(i.st_mode)]
    return len(sizes), sum(sizes)
