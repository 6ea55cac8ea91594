"""Forecast how long a build takes on a number of workers, by what compiles took before and a stated
guess for the rest."""

import heapq
import json
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lazyck.abi import archs_in_name
from lazyck.errors import UsageError
from lazyck.history.costs import Costs
from lazyck.prebuild.blob_entries import BlobEntry
from lazyck.quantities import counted, show_kib, show_seconds
from lazyck.visible import visible

_DRAWS = 11
_FEW = 5  # records; a guess from fewer is assumed to be wrong by up to a factor of two
_SHOWN = 5


@dataclass(frozen=True)
class Range:
    """A likely value, and the bounds of what is plausible."""

    low: float
    likely: float
    high: float

    def __str__(self) -> str:
        """Format it as `20 m 05 s`, with its bounds in brackets unless they are equal."""
        bounds = f" ({show_seconds(self.low)} to {show_seconds(self.high)})" if self.low != self.high else ""
        return show_seconds(self.likely) + bounds

    def rounded(self) -> dict[str, float]:
        return {name: round(value, 1) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Task:
    """A compile: its duration in seconds and the memory that it reserves."""

    seconds: float
    kib: int = 0


@dataclass(frozen=True)
class Fleet:
    """A number of workers, each with its parallel jobs and memory (None: no bound)."""

    workers: int
    jobs: int
    memory_kib: int | None = None

    @property
    def total_jobs(self) -> int:
        return self.workers * self.jobs


@dataclass(frozen=True)
class ScheduledTask:
    """Where and when a task runs. `task` is its number."""

    task: int
    worker: int
    begin: float
    end: float


def schedule(tasks: Sequence[Task], fleet: Fleet) -> list[ScheduledTask]:
    """Decide which worker compiles what and when. The placements are in the order in which they
    begin.

    The model follows a farm. The longest task takes the first free job slot. It begins on its
    worker when the memory that it needs is free, or when nothing else runs there (`HostPermit` of
    the runtime). Until then it keeps its job slot.
    """
    running: list[set[int]] = [set() for _ in range(fleet.workers)]
    waiting: list[list[int]] = [[] for _ in range(fleet.workers)]
    ends: list[tuple[float, int, int]] = []  # (time, worker, task)
    placed: list[ScheduledTask] = []

    def begin(number: int, at: int, now: float) -> bool:
        task, used = tasks[number], sum(tasks[n].kib for n in running[at])
        if running[at] and fleet.memory_kib is not None and used + task.kib > fleet.memory_kib:
            return False
        running[at].add(number)
        placed.append(ScheduledTask(number, at, now, now + task.seconds))
        heapq.heappush(ends, (now + task.seconds, at, number))
        return True

    queue = iter(sorted(range(len(tasks)), key=lambda i: -tasks[i].seconds))

    def take_next(at: int, now: float) -> None:
        if (number := next(queue, None)) is not None and not begin(number, at, now):
            waiting[at].append(number)

    for slot in range(min(fleet.total_jobs, len(tasks))):
        take_next(slot % fleet.workers, 0.0)
    while ends:
        now, at, ended = heapq.heappop(ends)
        running[at].remove(ended)
        waiting[at] = [n for n in waiting[at] if not begin(n, at, now)]
        take_next(at, now)
    return placed


def makespan(placed: Sequence[ScheduledTask]) -> float:
    return max((p.end for p in placed), default=0.0)


def least(tasks: Sequence[Task], fleet: Fleet) -> float:
    """Return a bound for every schedule: the longest task, or all work spread over all job
    slots."""
    longest = max((t.seconds for t in tasks), default=0.0)
    return max(longest, sum(t.seconds for t in tasks) / fleet.total_jobs)


@dataclass(frozen=True)
class Known:
    """An entry to compile, its seconds (None: never compiled), whether they are for other archs,
    and its memory."""

    entry: BlobEntry
    seconds: float | None
    is_of_other_archs: bool
    kib: int


@dataclass(frozen=True)
class Work:
    """All that there is to compile. `basis` are the recorded seconds that stand for what was never
    compiled: those for the same archs, or, if there are none (`is_basis_of_other_archs`), those for
    any arch."""

    cached: int
    jobs: tuple[Known, ...]
    basis: tuple[float, ...]
    is_basis_of_other_archs: bool = False

    @property
    def guessed(self) -> int:
        return sum(j.seconds is None for j in self.jobs)


@dataclass(frozen=True)
class Forecast:
    """The forecast for one fleet: the time to the end, the share of the job slots' time that
    compiles fill, a bound that no schedule beats, and how many jobs need more memory than a worker
    has."""

    fleet: Fleet
    seconds: Range
    efficiency: float
    least: float
    too_large: int


def gather(entries: Sequence[BlobEntry], costs: Costs, from_scratch: bool = False) -> Work:
    """Return what is to be compiled, with what is known of it. With `from_scratch`, nothing counts
    as cached.

    Raises `UsageError` if a guess is needed and no compile of the library is recorded here.
    """
    wanted = [e for e in entries if from_scratch or not e.cached]
    jobs = []
    for entry in wanted:
        library, blob, archs = entry.cost_key
        is_exact = (library, blob, archs_in_name(archs)) in costs.seconds
        seconds = costs.of(library, blob, archs)
        jobs.append(Known(entry, seconds, seconds is not None and not is_exact, costs.need_kib(library, blob, archs)))
    keys = {j.entry.cost_key[::2] for j in jobs}
    basis = [s for (library, _, archs), s in costs.seconds.items() if (library, archs) in keys]
    is_other = not basis
    basis = basis or [s for (library, _, _), s in costs.seconds.items() if library in {k[0] for k in keys}]
    if not basis and any(j.seconds is None for j in jobs):
        raise UsageError(
            f"no compile of {jobs[0].entry.cost_key[0]} is recorded in the cache, so nothing says how long one takes",
            "compile a few that are typical, such as the shortest and the longest, with `lazyck prebuild build`",
        )
    return Work(len(entries) - len(wanted), tuple(jobs), tuple(sorted(basis)), is_other)


def draws(work: Work) -> Iterator[list[Task]]:
    """Yield several possible sets of tasks, always the same ones, or one if nothing is a guess.
    What was never compiled takes a time from a resampled basis."""
    for number in range(_DRAWS if work.guessed else 1):
        dice = random.Random(number)
        basis = dice.choices(work.basis, k=len(work.basis)) if work.basis else [0.0]
        scale = dice.uniform(0.5, 2.0) if len(work.basis) < _FEW else 1.0
        yield [Task(dice.choice(basis) * scale if j.seconds is None else j.seconds, j.kib) for j in work.jobs]


def spread(values: Sequence[float]) -> Range:
    """Return the median and the bounds of the values. The outermost value on either side is left
    out if there are more than two."""
    ordered = sorted(values)
    cut = 1 if len(ordered) > 2 else 0
    return Range(ordered[cut], statistics.median(ordered), ordered[-1 - cut])


def forecast(work: Work, fleet: Fleet) -> Forecast:
    """Forecast the work on a fleet, longest jobs first."""
    times, shares, bounds = [], [], []
    for tasks in draws(work):
        time = makespan(schedule(tasks, fleet))
        times.append(time)
        bounds.append(least(tasks, fleet))
        shares.append(sum(t.seconds for t in tasks) / (time * fleet.total_jobs) if time else 1.0)
    too_large = 0 if fleet.memory_kib is None else sum(j.kib > fleet.memory_kib for j in work.jobs)
    return Forecast(fleet, spread(times), statistics.median(shares), statistics.median(bounds), too_large)


def total(work: Work) -> Range:
    return spread([sum(t.seconds for t in tasks) for tasks in draws(work)])


def longest(work: Work) -> list[Known]:
    known = [j for j in work.jobs if j.seconds is not None]
    return sorted(known, key=lambda j: -(j.seconds or 0))[:_SHOWN]


def render(work: Work, forecasts: Sequence[Forecast]) -> str:
    count = counted(len(work.jobs) + work.cached, "entry", "entries")
    if not work.jobs:
        return f"{count}, all cached already: nothing to compile (--from-scratch plans as if nothing were)\n"
    lines = [f"{count}, {work.cached} cached already, {len(work.jobs)} to compile: {total(work)} of compiles"]
    lines += [f"  {line}" for line in _bases(work)]
    rows = [("workers", "jobs each", "memory each", "time", "efficiency", "not less than")]
    for f in forecasts:
        memory = "not considered" if f.fleet.memory_kib is None else show_kib(f.fleet.memory_kib)
        bound = "the longest alone" if f.least * f.fleet.total_jobs > total(work).likely * 1.001 else "all slots busy"
        rows.append((
            str(f.fleet.workers), str(f.fleet.jobs), memory, str(f.seconds), f"{f.efficiency:.0%}",
            f"{show_seconds(f.least)}, {bound}",
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines += ["", *("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)]
    if large := max((f.too_large for f in forecasts), default=0):
        need, are = ("needs", "is") if large == 1 else ("need", "are")
        lines += ["", f"{large} {need} more memory than that, and {are} compiled alone on a worker"]
    if shown := longest(work):
        lines += ["", "longest:"]
        lines += [
            f"  {show_seconds(j.seconds or 0):>9}  {visible(j.entry.name)}"
            f" ({visible(j.entry.shown_arch)}, {show_kib(j.kib)})"
            for j in shown
        ]
    return "\n".join(lines) + "\n"


def _bases(work: Work) -> list[str]:
    others = sum(j.is_of_other_archs for j in work.jobs)
    lines = [f"{len(work.jobs) - others - work.guessed} from what they took before"]
    lines += [f"{others} from what they took for other archs"] if others else []
    if work.guessed:
        of = " for other archs" if work.is_basis_of_other_archs else ""
        middle = show_seconds(statistics.median(work.basis))
        lines.append(
            f"{work.guessed} guessed, as the library's {counted(len(work.basis), 'recorded compile')}{of}: "
            f"{show_seconds(work.basis[0])} to {show_seconds(work.basis[-1])}, median {middle}"
            + ("; since these are few, the guess may be wrong by a factor of two" if len(work.basis) < _FEW else "")
        )
    return lines


def to_json(work: Work, forecasts: Sequence[Forecast]) -> str:
    return json.dumps({
        "total": len(work.jobs) + work.cached,
        "cached": work.cached,
        "to_compile": len(work.jobs),
        "of_other_archs": sum(j.is_of_other_archs for j in work.jobs),
        "guessed": work.guessed,
        "basis": list(work.basis) if work.guessed else [],
        "core_seconds": total(work).rounded(),
        "longest": [
            {"blob": j.entry.name, "arch": j.entry.shown_arch, "seconds": j.seconds, "memory_kib": j.kib}
            for j in longest(work)
        ],
        "plans": [
            {
                "workers": f.fleet.workers, "jobs": f.fleet.jobs, "memory_kib": f.fleet.memory_kib,
                "seconds": f.seconds.rounded(), "efficiency": round(f.efficiency, 3),
                "least_seconds": round(f.least, 1), "too_large": f.too_large,
            }
            for f in forecasts
        ],
    }, indent=1)  # fmt: skip
