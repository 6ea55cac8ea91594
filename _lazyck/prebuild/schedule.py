"""Decide which worker compiles what and when: list scheduling on places that share a worker's
memory. Pure.

The model follows a farm. A task takes the first free place, the longest first. It begins on its
worker when the memory that it needs is free, or when nothing else runs there (`HostPermit` of the
runtime). Until then it keeps its place.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Task:
    """A compile: its duration in seconds and the memory that it reserves."""

    seconds: float
    kib: int = 0


@dataclass(frozen=True)
class Fleet:
    """A number of workers, with the places and the memory (None: no bound) of each."""

    workers: int
    places: int
    memory_kib: int | None = None

    @property
    def total_places(self) -> int:
        """Return how many compiles can run at the same time."""
        return self.workers * self.places


@dataclass(frozen=True)
class Placed:
    """Where and when a task runs. `task` is its number."""

    task: int
    worker: int
    begin: float
    end: float


@dataclass
class _Worker:
    running: int = 0
    used_kib: int = 0
    waiting: list[int] = field(default_factory=list)


def schedule(tasks: Sequence[Task], fleet: Fleet) -> list[Placed]:
    """Place every task once, longest first. The placements are in the order in which they begin."""
    workers = [_Worker() for _ in range(fleet.workers)]
    ends: list[tuple[float, int, int]] = []  # (time, worker, task)
    placed: list[Placed] = []

    def begin(number: int, at: int, now: float) -> bool:
        worker, task = workers[at], tasks[number]
        has_room = fleet.memory_kib is None or worker.used_kib + task.kib <= fleet.memory_kib
        if worker.running and not has_room:
            return False
        worker.running += 1
        worker.used_kib += task.kib
        placed.append(Placed(number, at, now, now + task.seconds))
        heapq.heappush(ends, (now + task.seconds, at, number))
        return True

    def take(number: int, at: int, now: float) -> None:
        if not begin(number, at, now):
            workers[at].waiting.append(number)

    queue = iter(sorted(range(len(tasks)), key=lambda i: -tasks[i].seconds))
    for place in range(fleet.total_places):
        if (number := next(queue, None)) is not None:
            take(number, place % fleet.workers, 0.0)
    while ends:
        now, at, ended = heapq.heappop(ends)
        worker = workers[at]
        worker.running -= 1
        worker.used_kib -= tasks[ended].kib
        worker.waiting = [n for n in worker.waiting if not begin(n, at, now)]
        if (number := next(queue, None)) is not None:
            take(number, at, now)
    return placed


def makespan(placed: Sequence[Placed]) -> float:
    """Return when the last task ends."""
    return max((p.end for p in placed), default=0.0)


def least(tasks: Sequence[Task], fleet: Fleet) -> float:
    """Return a bound for every schedule: the longest task, or all work spread over all places."""
    longest = max((t.seconds for t in tasks), default=0.0)
    return max(longest, sum(t.seconds for t in tasks) / fleet.total_places)
