"""Model, in SimPy, many hosts that start at once and need the same blobs, to see what each policy
costs.

A host is one process. Its ranks call the same blobs in the same order: the first of them obtains a
blob, and the others wait for it on the host's own lock. So the ranks only decide when the first and
the last of a host start.

The remote is a queue that answers so many requests a second in the order of their arrival, and a
link of so many bytes a second each way. All transfers share the link equally, and none is faster
than a host's own link. A host that waits longer than `timeout` for an answer takes the remote to be
down for `down` seconds, and compiles.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

POLICIES = ("no remote", "no leases", "jittered start", "leases", "pulled before")
Steps = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True)
class Parameters:
    """Holds seconds, bytes, and requests a second. With `atomic` the remote creates a lease in one
    request, as Redis does."""

    blobs: Sequence[float]  # seconds of each blob's compile
    size: float = 140e3  # bytes of an entry
    ranks: int = 8
    parallel: int = 1  # blobs that a host obtains at a time: 1 for first calls, LAZYCK_JOBS with LAZYCK_PREFETCH
    streams: int = 8  # parallel transfers of `lazyck cache pull`
    start: float = 2.0  # all ranks start within this time
    noise: float = 0.1  # share by which compiles of the same blob differ
    look: float = 0.1  # to start the helper
    cores: int = 0  # cores that all hosts share where they are one machine; 0: each host has enough of its own
    compile_cpu: float = 0.0  # CPU seconds of each compile on shared cores, besides its seconds
    request_cpu: float = 0.0  # CPU seconds of each request on shared cores
    round_trip: float = 1e-3
    requests: float = 20e3  # requests that the remote answers in a second
    link: float = 1.25e9
    host_link: float = 1.25e9
    timeout: float = 10.0
    fetch_bound: float = 60.0
    down: float = 60.0
    first_poll: float = 0.2
    last_poll: float = 2.0
    jitter: float = 0.25  # largest delay of a start, as a share of the compile
    atomic: bool = False
    seed: int = 7


@dataclass
class Remote:
    """Holds the entries and leases of the remote, and counts for each second what was asked of
    it."""

    env: simpy.Environment
    p: Parameters
    has: dict[int, float] = field(default_factory=dict)  # blob → the time from which on it is there
    leases: dict[int, int] = field(default_factory=dict)  # blob → host
    requests: dict[int, int] = field(default_factory=dict)
    bytes: dict[int, float] = field(default_factory=dict)
    free_at: float = 0.0

    def __post_init__(self) -> None:
        self.down_link = Link(self.env, self.p, self.bytes)
        self.up_link = Link(self.env, self.p, self.bytes)

    def ask(self, count: int = 1) -> float:
        """Queue requests, one after the other; return the seconds until the last answer."""
        now: float = self.env.now
        self.requests[int(now)] = self.requests.get(int(now), 0) + count
        self.free_at = max(self.free_at, now) + count / self.p.requests
        return self.free_at - now + count * self.p.round_trip


class Link:
    """Shares the bytes of one direction equally. `self._given` is what each transfer under way has
    received since the beginning, so that a transfer ends when `self._given` has grown by its
    size."""

    def __init__(self, env: simpy.Environment, p: Parameters, counts: dict[int, float]) -> None:
        self._env, self._p, self._counts = env, p, counts
        self._given = 0.0
        self._at = 0.0
        self._ends: list[tuple[float, int, simpy.Event]] = []
        self._left: set[int] = set()  # transfers that were given up
        self._number = 0
        self._turn = 0

    def transfer(self, size: float) -> tuple[int, simpy.Event]:
        """Begin a transfer; return its number and the event of its end."""
        self._advance()
        self._number += 1
        done = self._env.event()
        heapq.heappush(self._ends, (self._given + size, self._number, done))
        self._arm()
        return self._number, done

    def give_up(self, number: int) -> None:
        """Stop a transfer."""
        self._advance()
        self._left.add(number)
        self._arm()

    @property
    def _running(self) -> int:
        return len(self._ends) - len(self._left)

    def _rate(self) -> float:
        return min(self._p.host_link, self._p.link / max(1, self._running))

    def _advance(self) -> None:
        now = self._env.now
        if self._running and now > self._at:
            rate = self._rate()
            self._given += rate * (now - self._at)
            moment = self._at
            while moment < now:
                until = min(now, int(moment) + 1.0)
                self._counts[int(moment)] = self._counts.get(int(moment), 0.0) + rate * self._running * (until - moment)
                moment = until
        self._at = now

    def _arm(self) -> None:
        """Schedule the next end of a transfer; earlier schedules become void."""
        while self._ends and self._ends[0][1] in self._left:
            self._left.discard(heapq.heappop(self._ends)[1])
        self._turn += 1
        if self._ends:
            wait = max(0.0, (self._ends[0][0] - self._given) / self._rate())
            turn = self._turn
            self._env.timeout(wait).callbacks.append(lambda _: self._end(turn))

    def _end(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._advance()
        first = True  # the transfer whose end this is; rounding may leave it a little short
        while self._ends and (first or self._ends[0][0] <= self._given + 1e-6):
            first = False
            _, number, done = heapq.heappop(self._ends)
            if number in self._left:
                self._left.discard(number)
            else:
                done.succeed()
        self._arm()


@dataclass(frozen=True)
class Result:
    """Holds the result of one run: seconds of ranks until they have all blobs, and the load on the
    remote."""

    policy: str
    hosts: int
    median: float
    last: float
    compiles: int
    skipped: int
    requests: int
    peak_requests: int
    bytes: float
    peak_bytes: float


class Fleet:
    """Simulates all hosts under one policy."""

    def __init__(self, policy: str, hosts: int, p: Parameters) -> None:
        self.env = simpy.Environment()
        self.policy, self.hosts, self.p = policy, hosts, p
        self.remote = Remote(self.env, p)
        self.cores = simpy.Resource(self.env, p.cores) if p.cores else None
        self.random = random.Random(p.seed)
        self.compiles = 0
        self.skipped = 0
        self.ready: list[float] = []  # the time at which each rank has all blobs
        if policy == "pulled before":
            self.remote.has = dict.fromkeys(range(len(p.blobs)), 0.0)

    def run(self) -> Result:
        """Run until the last rank has all blobs."""
        for _ in range(self.hosts):
            starts = sorted(self.random.uniform(0, self.p.start) for _ in range(self.p.ranks))
            self.env.process(self._host(starts))
        self.env.run()
        r = self.remote
        return Result(
            self.policy, self.hosts, statistics.median(self.ready), max(self.ready), self.compiles, self.skipped,
            sum(r.requests.values()), max(r.requests.values(), default=0),
            sum(r.bytes.values()), max(r.bytes.values(), default=0.0),
        )  # fmt: skip

    def _host(self, starts: list[float]) -> Steps:
        yield self.env.timeout(starts[0])
        host = _Host(self)
        todo = iter(range(len(self.p.blobs)))
        count = self.p.streams if self.policy == "pulled before" else self.p.parallel
        lanes = [self.env.process(host.obtain_all(todo)) for _ in range(count)]
        yield self.env.all_of(lanes)
        self.ready += [max(self.env.now, start) for start in starts]


class _Host:
    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.env, self.p, self.remote = fleet, fleet.env, fleet.p, fleet.remote
        self.random = fleet.random
        self.down_until = 0.0

    def obtain_all(self, todo: Any) -> Steps:
        for blob in todo:
            yield from self.obtain(blob)

    def obtain(self, blob: int) -> Steps:
        policy = self.fleet.policy
        seconds = self.p.blobs[blob] * self.random.uniform(1 - self.p.noise, 1 + self.p.noise)
        if policy == "no remote":
            yield from self.compile(seconds)
            return
        if policy != "pulled before" or self.fleet.cores:
            yield from self.start_helper()
        if (yield from self.fetch(blob)):
            return
        if policy == "jittered start":
            yield self.env.timeout(self.random.uniform(0, self.p.jitter * seconds))
            if (yield from self.fetch(blob)):
                return
        if policy == "leases" and (yield from self.wait_for_others(blob)):
            return
        yield from self.compile(seconds)
        self.env.process(self.push(blob))

    def start_helper(self) -> Steps:
        if self.fleet.cores is None:
            yield self.env.timeout(self.p.look)
        else:
            yield from self.work(self.p.look)

    def work(self, seconds: float) -> Steps:
        """Work for so many seconds on the cores that all hosts share."""
        if self.fleet.cores is not None and seconds:
            with self.fleet.cores.request() as turn:
                yield turn
                yield self.env.timeout(seconds)

    def compile(self, seconds: float) -> Steps:
        self.fleet.compiles += 1
        yield from self.work(self.p.compile_cpu)
        yield self.env.timeout(seconds)

    def ask(self, count: int = 1) -> Steps:
        """Send requests; return whether they were answered in time."""
        if self.env.now < self.down_until:
            return False
        yield from self.work(count * self.p.request_cpu)
        wait = self.remote.ask(count)
        if wait <= self.p.timeout:
            yield self.env.timeout(wait)
            return True
        yield self.env.timeout(self.p.timeout)
        self.give_up()
        return False

    def give_up(self) -> None:
        self.fleet.skipped += 1
        self.down_until = self.env.now + self.p.down * self.random.uniform(0.5, 1.5)

    def fetch(self, blob: int) -> Steps:
        """Fetch the record, then the contents; return whether they came."""
        if not (yield from self.ask()) or self.remote.has.get(blob, self.env.now) >= self.env.now:
            return False
        return (yield from self.download(blob))

    def download(self, blob: int) -> Steps:
        if not (yield from self.ask()):
            return False
        number, done = self.remote.down_link.transfer(self.p.size)
        yield done | self.env.timeout(self.p.fetch_bound)
        if done.processed:
            return True
        self.remote.down_link.give_up(number)
        self.give_up()
        return False

    def push(self, blob: int) -> Steps:
        if not (yield from self.ask(3)):  # two checks (record, contents), and the upload of the contents
            return
        _, done = self.remote.up_link.transfer(self.p.size)
        yield done
        if (yield from self.ask()):
            self.remote.has.setdefault(blob, self.env.now)
            if self.fleet.policy == "leases":
                yield from self.release(blob)

    def wait_for_others(self, blob: int) -> Steps:
        """Return whether another host made the blob. If not, this host has the lease, or the remote
        does not answer. The steps are those of lazyck/remote/turn.py."""
        began = self.env.now
        is_first = True
        while True:
            if not (yield from self.ask()):  # ask who has the lease
                return False
            is_free = blob not in self.remote.leases
            if not is_first and (yield from self.fetch(blob)):
                return True
            is_first = False
            if is_free and (yield from self.take(blob)):
                if (yield from self.fetch(blob)):
                    yield from self.release(blob)
                    return True
                return False
            if self.env.now < self.down_until:
                return False
            waited = self.env.now - began
            pause = min(max(self.p.first_poll, waited / 10), self.p.last_poll)
            yield self.env.timeout(pause * self.random.uniform(0.5, 1.5))

    def take(self, blob: int) -> Steps:
        """Return whether this host now has the lease, which was free a moment ago."""
        leases = self.remote.leases
        if not (yield from self.ask()):
            return False
        if not self.p.atomic or blob not in leases:
            leases[blob] = id(self)  # without conditional writes the last one to write has the lease
        if not self.p.atomic:
            yield self.env.timeout(self.random.uniform(0.15, 0.25) + 2 * self.p.round_trip)
            yield from self.ask()
        return leases.get(blob) == id(self)

    def release(self, blob: int) -> Steps:
        yield from self.ask(2)  # check that the lease is still this host's, then delete it
        if self.remote.leases.get(blob) == id(self):
            del self.remote.leases[blob]
