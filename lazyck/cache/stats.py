"""What a cache holds and what it has saved: sums over its entries and its history."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lazyck import abi
from lazyck.cache.entries import CacheContents
from lazyck.history.costs import Costs
from lazyck.history.events import Event
from lazyck.quantities import counted, show_seconds, show_size
from lazyck.visible import visible


@dataclass(frozen=True)
class Sums:
    """Entries and their bytes, and the events of all processes. `hits` are loads from the cache,
    `fetched` are loads from a remote cache, and `misses` are compiles that succeeded."""

    entries: int
    bytes: int
    hits: int
    fetched: int
    misses: int
    failures: int
    waits: int
    seconds_spent: float
    seconds_saved: float
    seconds_waited: float


@dataclass(frozen=True)
class CacheStats:
    """Sums over a cache. `shares` are the sums by library and arch, spelled as in file names.

    `used_bytes` is what the runtime compares with the limit `max_bytes`, which is 0 if there is
    none. `since` is when the counters began: at the oldest event that is known, or when they were
    set to zero. It is 0 if no event is known.
    """

    total: Sums
    shares: tuple[tuple[str, str, Sums], ...]
    preambles: int
    preamble_bytes: int
    used_bytes: int
    max_bytes: int
    since: float


def add_up(
    holdings: CacheContents,
    max_bytes: int,
    events: Sequence[Event],
    known: Costs,
    zeroed: float = 0.0,
) -> CacheStats:
    """Return the sums. Events that had ended when the counters were `zeroed` do not count.

    A hit saves what the last compile of the blob took, according to the history, else according to
    `known`.
    """
    took = known.with_events(events)
    counting = [e for e in events if e.start + e.seconds >= zeroed]
    sizes: dict[tuple[str, str], list[int]] = defaultdict(list)
    for entry in holdings.entries:
        sizes[entry.at.library, entry.at.archs].append(entry.size)
    happened: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in counting:
        happened[event.library, abi.archs_in_name(event.arch)].append(event)
    return CacheStats(
        total=_sums([entry.size for entry in holdings.entries], counting, took),
        shares=tuple((*key, _sums(sizes[key], happened[key], took)) for key in sorted({*sizes, *happened})),
        preambles=len(holdings.preambles),
        preamble_bytes=sum(holdings.preambles),
        used_bytes=holdings.used_bytes,
        max_bytes=max_bytes,
        since=max(zeroed, min((e.start for e in events), default=0.0)),
    )


def _sums(sizes: Sequence[int], events: Sequence[Event], took: Costs) -> Sums:
    loads = [e for e in events if e.kind == abi.EVENT_LOAD and not e.has_failed]
    hits = [e for e in loads if e.what.startswith(abi.ORIGIN_CACHE)]
    fetched = [e for e in loads if e.what.startswith(abi.ORIGIN_REMOTE + " ")]
    waits = [e for e in events if e.kind == abi.EVENT_WAIT]
    return Sums(
        entries=len(sizes),
        bytes=sum(sizes),
        hits=len(hits),
        fetched=len(fetched),
        misses=sum(e.kind == abi.EVENT_COMPILE and not e.has_failed for e in events),
        failures=sum(e.has_failed for e in events),
        waits=len(waits),
        seconds_spent=sum(e.seconds for e in events if e.kind == abi.EVENT_COMPILE),
        seconds_saved=sum(took.of(e.library, e.blob, e.arch) or 0.0 for e in [*hits, *fetched]),
        seconds_waited=sum(e.seconds for e in waits),
    )


def render(stats: CacheStats, now: float) -> str:
    total = stats.total
    lines = [f"entries   {total.entries}, {show_size(total.bytes)}"]
    for library, arch, s in stats.shares:
        if s.entries:
            count = counted(s.entries, "entry", "entries")
            lines.append(f"  {visible(library)} for {visible(arch)}: {count}, {show_size(s.bytes)}")
    if stats.preambles:
        lines.append(f"preambles {stats.preambles}, {show_size(stats.preamble_bytes)}")
    most = stats.max_bytes
    share = f"{100 * stats.used_bytes / most:.0f} % of {show_size(most)}" if most else "none"
    lines.append(f"limit     {share}, {show_size(stats.used_bytes)} used, logs included")
    if not stats.since:
        return "\n".join([*lines, "history   none"])
    asked = total.hits + total.fetched + total.misses
    rate = f" ({100 * total.hits / asked:.0f} % of {asked})" if asked else ""
    return "\n".join([
        *lines,
        f"history   of the last {show_seconds(max(0, round(now - stats.since)))}",
        f"hits      {total.hits}{rate}",
        *([f"fetched   {total.fetched} from remote caches"] if total.fetched else []),
        f"misses    {total.misses} compiled",
        f"failures  {total.failures}",
        f"waits     {total.waits}, {show_seconds(total.seconds_waited)}",
        f"compiles  {show_seconds(total.seconds_spent)} spent, {show_seconds(total.seconds_saved)} saved by hits",
    ])  # fmt: skip


def to_json(stats: CacheStats) -> dict[str, object]:
    raw = asdict(stats)
    shares = [{"library": library, "arch": arch, **asdict(sums)} for library, arch, sums in stats.shares]
    return {**raw.pop("total"), **raw, "shares": shares}


# The metrics of a library and arch: each with its field of `Sums`, and its help. Names of counters,
# which only grow, end in `_total`. docs/operating.md says what a change of each metric means.
METRICS = {
    "lazyck_cache_entries": ("entries", "Compiled blobs in the cache."),
    "lazyck_cache_entry_bytes": ("bytes", "Bytes of the compiled blobs in the cache."),
    "lazyck_cache_hits_total": ("hits", "Blobs loaded from the cache."),
    "lazyck_cache_fetched_total": ("fetched", "Blobs loaded from a remote cache."),
    "lazyck_cache_misses_total": ("misses", "Blobs that were compiled because no cache had them."),
    "lazyck_cache_failures_total": ("failures", "Compiles, waits and loads that failed."),
    "lazyck_cache_waits_total": ("waits", "Waits for another process's compile or for a compile permit."),
    "lazyck_cache_compile_seconds_total": ("seconds_spent", "Time spent compiling."),
    "lazyck_cache_saved_seconds_total": ("seconds_saved", "Compile time that loads from a cache saved."),
    "lazyck_cache_wait_seconds_total": ("seconds_waited", "Time spent waiting."),
}


def render_metrics(stats: CacheStats, cache: Path) -> str:
    """Return all metrics, each with HELP and TYPE, in the text format of Prometheus, for the
    textfile collector of its node_exporter.

    The label `cache` tells several caches of a host apart. A metric without a value (a limit, a
    history) has no line.
    """
    lines = []
    own = _label("cache", str(cache))
    for name, (field, text) in METRICS.items():
        lines += _head(name, text)
        for library, arch, sums in stats.shares:
            labels = ",".join([own, _label("library", library), _label("arch", arch)])
            lines.append(f"{name}{{{labels}}} {getattr(sums, field)!r}")
    for name, text, value in (
        ("lazyck_cache_preambles", "Precompiled preambles in the cache.", stats.preambles),
        ("lazyck_cache_preamble_bytes", "Bytes of the precompiled preambles.", stats.preamble_bytes),
        ("lazyck_cache_used_bytes", "Bytes on disk that count towards the limit.", stats.used_bytes),
        ("lazyck_cache_limit_bytes", "LAZYCK_CACHE_MAXSIZE.", stats.max_bytes or None),
        ("lazyck_cache_since_timestamp_seconds", "When the counters began to count.", stats.since or None),
    ):
        if value is not None:
            lines += [*_head(name, text), f"{name}{{{own}}} {value!r}"]
    return "\n".join(lines)


def _head(name: str, text: str) -> list[str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _label(name: str, value: str) -> str:
    escaped = visible(value).replace("\\", r"\\").replace('"', r"\"")
    return f'{name}="{escaped}"'
