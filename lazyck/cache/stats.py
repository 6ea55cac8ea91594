"""What a cache holds, and what it was good for: sums over its entries and its history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from lazyck.cache.entries import CacheEntry
from lazyck.costs import Costs
from lazyck.history import Event
from lazyck.quantities import counted, show_seconds, show_size
from lazyck.visible import visible


@dataclass(frozen=True)
class Share:
    """The entries of a library for an arch."""

    library: str
    arch: str
    entries: int
    bytes: int


@dataclass(frozen=True)
class Stats:
    """`bytes` are those of entries, `preamble_bytes` of precompiled preambles. `hits` are loads out of the cache,
    `fetched` those that a remote cache had, `misses` compiles that succeeded, of whichever process."""

    entries: int
    bytes: int
    preambles: int
    preamble_bytes: int
    shares: tuple[Share, ...]
    hits: int
    fetched: int
    misses: int
    failures: int
    waits: int
    seconds_spent: float
    seconds_saved: float
    seconds_waited: float
    since: float


def add_up(entries: Iterable[CacheEntry], preambles: Sequence[int], events: Sequence[Event], known: Costs) -> Stats:
    """The sums; `preambles` are the bytes of each. What a hit saved is what that blob's last compile took, by the
    history, else by `known`."""
    shares: dict[tuple[str, str], tuple[int, int]] = {}
    for entry in entries:
        count, size = shares.get((entry.library, entry.archs), (0, 0))
        shares[entry.library, entry.archs] = (count + 1, size + entry.size)
    compiles = [e for e in events if e.kind == "compile" and not e.has_failed]
    took = known.with_events(events)
    loads = [e for e in events if e.kind == "load" and not e.has_failed]
    hits = [e for e in loads if e.what.startswith("cache")]
    fetched = [e for e in loads if e.what.startswith("remote ")]
    waits = [e for e in events if e.kind == "wait"]
    saved = (took.of(e.library, e.blob, e.arch) or 0.0 for e in [*hits, *fetched])
    return Stats(
        entries=sum(count for count, _ in shares.values()),
        bytes=sum(size for _, size in shares.values()),
        preambles=len(preambles),
        preamble_bytes=sum(preambles),
        shares=tuple(Share(*key, *shares[key]) for key in sorted(shares)),
        hits=len(hits),
        fetched=len(fetched),
        misses=len(compiles),
        failures=sum(e.has_failed for e in events),
        waits=len(waits),
        seconds_spent=sum(e.seconds for e in events if e.kind == "compile"),
        seconds_saved=sum(saved),
        seconds_waited=sum(e.seconds for e in waits),
        since=min((e.start for e in events), default=0.0),
    )


def render(stats: Stats, now: float) -> str:
    """The sums for people."""
    lines = [f"entries   {stats.entries}, {show_size(stats.bytes)}"]
    for s in stats.shares:
        where = f"{visible(s.library)} for {visible(s.arch)}"
        lines.append(f"  {where}: {counted(s.entries, 'entry', 'entries')}, {show_size(s.bytes)}")
    if stats.preambles:
        lines.append(f"preambles {stats.preambles}, {show_size(stats.preamble_bytes)}")
    if not stats.since:
        return "\n".join([*lines, "history   none"])
    asked = stats.hits + stats.fetched + stats.misses
    rate = f" ({100 * stats.hits / asked:.0f} % of {asked})" if asked else ""
    return "\n".join([
        *lines,
        f"history   of the last {show_seconds(max(0, round(now - stats.since)))}",
        f"hits      {stats.hits}{rate}",
        *([f"fetched   {stats.fetched} from remote caches"] if stats.fetched else []),
        f"misses    {stats.misses} compiled",
        f"failures  {stats.failures}",
        f"waits     {stats.waits}, {show_seconds(stats.seconds_waited)}",
        f"compiles  {show_seconds(stats.seconds_spent)} spent, {show_seconds(stats.seconds_saved)} saved by hits",
    ])  # fmt: skip


def to_json(stats: Stats) -> dict[str, object]:
    """The sums for programs."""
    return asdict(stats)
