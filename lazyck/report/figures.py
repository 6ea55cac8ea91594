"""Figures from a history: sums, the blobs that cost most, growth, runs, the timeline's lanes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lazyck import abi
from lazyck.formats.manifest import Manifest
from lazyck.history.costs import Costs
from lazyck.history.events import Event
from lazyck.visible import visible

_IDLE = 30 * 60  # seconds without an event that end a run
_SHORT_LIVED = 2  # most events of a process that shares a lane: `lazyck prebuild` starts a process for each blob
_MANY_PROCESSES = 16
_RANKLESS = 1 << 53  # after all ranks


@dataclass(frozen=True)
class Summary:
    """Sums over the whole period. Times are in seconds, sizes in bytes.

    `hits` are loads from a cache. `saved_seconds` is what the last compiles of these blobs took.
    `unknown_hits` are those loads for which this is not known. `cache_entries` and `cache_bytes`
    are of the whole cache at the time of the report.
    """

    first: float
    last: float
    hosts: int
    processes: int
    compiles: int
    compiled_blobs: int
    compile_seconds: float
    hits: int
    saved_seconds: float
    unknown_hits: int
    wait_seconds: float
    failures: int
    cache_entries: int
    cache_bytes: int


@dataclass(frozen=True)
class BlobCost:
    """One blob for one arch. `seconds` is the time of all its compiles, including failed ones, and
    `share` is its part of all compile time (0 to 1). `loads` is how often it was loaded. `peak_kib`
    is the largest, and `size` is the newest, in bytes, or 0 if it is unknown."""

    blob: str
    library: str
    arch: str
    seconds: float
    share: float
    compiles: int
    loads: int
    peak_kib: int
    size: int


@dataclass(frozen=True)
class BuildCoverage:
    """A library compared with its full build. Of its lazy `blobs`, `compiled` are known to have
    been compiled, in `mean_seconds` each."""

    library: str
    blobs: int
    eager: int
    compiled: int
    mean_seconds: float

    @property
    def whole_seconds(self) -> float:
        """An extrapolation for one arch on one core: all blobs, at the mean of those compiled."""
        return self.blobs * self.mean_seconds


@dataclass(frozen=True)
class ActivePeriod:
    start: float
    end: float
    compiles: int
    compile_seconds: float


@dataclass(frozen=True)
class Lane:
    """One process, or several short ones of a host that do not overlap. Events are by thread."""

    label: str
    threads: tuple[tuple[Event, ...], ...]


_Placed = tuple[tuple[int, str, float], Lane]  # with what decides about the lane's place


def summarize(events: Sequence[Event], costs: Costs, cache_entries: int, cache_bytes: int, made: float) -> Summary:
    """Return the sums. `events` are in order of their start. Without any, the period is `made`."""
    compiles = [e for e in events if e.kind == abi.EVENT_COMPILE]
    good = [e for e in compiles if not e.has_failed]
    hits = [e for e in events if e.is_cache_load]
    saved = [s for e in hits if (s := costs.of(e.library, e.blob, e.arch)) is not None]
    return Summary(
        first=events[0].start if events else made,
        last=max((e.start + e.seconds for e in events), default=made),
        hosts=len({e.host for e in events}),
        processes=len({(e.host, e.pid) for e in events}),
        compiles=len(good),
        compiled_blobs=len({(e.library, e.blob, e.arch) for e in good}),
        compile_seconds=sum(e.seconds for e in compiles),
        hits=len(hits),
        saved_seconds=sum(saved),
        unknown_hits=len(hits) - len(saved),
        wait_seconds=sum(e.seconds for e in events if e.kind == abi.EVENT_WAIT),
        failures=sum(e.has_failed for e in events),
        cache_entries=cache_entries,
        cache_bytes=cache_bytes,
    )


def blob_costs(events: Sequence[Event]) -> list[BlobCost]:
    """Return every blob with a compile, successful or not, the longest compile time first."""
    loads = Counter((e.library, e.blob, e.arch) for e in events if e.kind == abi.EVENT_LOAD and not e.has_failed)
    grouped: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for e in events:
        if e.kind == abi.EVENT_COMPILE:
            grouped[e.library, e.blob, e.arch].append(e)
    total = sum(e.seconds for of_blob in grouped.values() for e in of_blob)
    costs = []
    for (library, blob, arch), compiles in grouped.items():
        seconds = sum(e.seconds for e in compiles)
        costs.append(
            BlobCost(
                blob=blob,
                library=library,
                arch=arch,
                seconds=seconds,
                share=seconds / total if total else 0.0,
                compiles=sum(not e.has_failed for e in compiles),
                loads=loads[library, blob, arch],
                peak_kib=max(e.peak_kib for e in compiles),
                size=next((e.size for e in reversed(compiles) if e.size), 0),
            )
        )
    return sorted(costs, key=lambda c: (-c.seconds, c.blob, c.arch, c.library))


def coverage(manifest: Manifest, costs: Costs) -> BuildCoverage:
    library = visible(manifest.library)
    names = {visible(b.name) for b in manifest.blobs}
    known = {blob: seconds for blob, seconds in costs.of_library(visible(manifest.shelf)).items() if blob in names}
    mean = sum(known.values()) / len(known) if known else 0.0
    return BuildCoverage(library, len(names), len(manifest.eager), len(known), mean)


def growth(events: Sequence[Event], most: int = 600) -> list[tuple[float, int]]:
    """Return pairs (time, bytes published so far), thinned out to at most `most` steps."""
    total = 0
    steps = []
    for e in sorted((e for e in events if e.kind == abi.EVENT_COMPILE and e.size), key=lambda e: e.start + e.seconds):
        total += e.size
        steps.append((e.start + e.seconds, total))
    stride = max(1, -(-len(steps) // most))
    return steps[stride - 1 :: stride] + (steps[-1:] if len(steps) % stride else [])


def runs(events: Sequence[Event]) -> list[ActivePeriod]:
    """Return the runs in the period, which is cut where nothing happened for half an hour."""
    found: list[ActivePeriod] = []
    for e in events:
        run = found.pop() if found and e.start <= found[-1].end + _IDLE else ActivePeriod(e.start, e.start, 0, 0)
        compiles, seconds = (1, e.seconds) if e.kind == abi.EVENT_COMPILE else (0, 0)
        end = max(run.end, e.start + e.seconds)
        found.append(ActivePeriod(run.start, end, run.compiles + compiles, run.compile_seconds + seconds))
    return found


def lanes(events: Sequence[Event]) -> list[Lane]:
    """Return a lane for each process, by rank and host. Short-lived ones of a host share lanes."""
    processes: dict[tuple[str, int, int], list[Event]] = defaultdict(list)
    for e in events:
        processes[e.host, e.rank, e.pid].append(e)
    found: list[_Placed] = []
    short: dict[str, list[tuple[list[Event], _Placed]]] = defaultdict(list)
    for (host, rank, pid), own in processes.items():
        rank_text = f"rank {rank} · " if rank >= 0 else ""
        order = rank if rank >= 0 else _RANKLESS
        lane = (order, host, own[0].start), Lane(f"{rank_text}{host or '?'} · pid {pid}", _by_thread(own))
        if rank < 0 and len(own) <= _SHORT_LIVED:
            short[host].append((own, lane))
        else:
            found.append(lane)
    for host, those in short.items():
        if len(those) <= _MANY_PROCESSES:
            found += [lane for _, lane in those]
            continue
        for row in _packed(own for own, _ in those):
            members = len({e.pid for e in row})
            label = f"{host or '?'} · {members} process{'es' if members > 1 else ''}"
            found.append(((_RANKLESS, host, row[0].start), Lane(label, (tuple(row),))))
    return [lane for _, lane in sorted(found, key=lambda f: f[0])]


def _by_thread(events: Sequence[Event]) -> tuple[tuple[Event, ...], ...]:
    threads: dict[int, list[Event]] = defaultdict(list)
    for e in events:
        threads[e.tid].append(e)
    return tuple(tuple(own) for own in threads.values())


def _packed(processes: Iterable[list[Event]]) -> list[list[Event]]:
    """Return rows of processes that do not overlap. Each goes into the first row that is free."""
    rows: list[list[Event]] = []
    ends: list[float] = []
    for own in sorted(processes, key=lambda p: p[0].start):
        end = max(e.start + e.seconds for e in own)
        free = next((i for i, taken in enumerate(ends) if taken <= own[0].start), -1)
        if free < 0:
            rows.append([])
            ends.append(0.0)
        rows[free].extend(own)
        ends[free] = end
    return rows
