"""Model, in SimPy, many hosts that start at once and need the same entries, to see what each policy
costs.

A host is one process. Its ranks call the same blobs in the same order: the first of them obtains a
blob, and the others wait for it on the host's own lock. So the ranks only decide when the first and
the last of a host start. Of more than `simulated` hosts, each simulated one stands for several,
whose requests, bytes and compiles all count.

A tier is a queue that answers so many requests a second in the order of their arrival, and a link
of so many bytes a second each way (fleet_tier.py, fleet_link.py). A host that waits longer than
`timeout` for an answer takes the tier to be down for a while (fleet_host.py). Without compilers,
hosts ask a compile service (fleet_service.py).
"""

import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import simpy
from fleet_host import Host, Steps
from fleet_link import Link
from fleet_service import Service, ServiceParameters
from fleet_tier import Entry, Spoiled, Tier
from fleet_units import Call, Unit


@dataclass(frozen=True)
class Parameters:
    """Holds seconds, bytes, and requests a second. With `atomic` the remote creates a lease in one
    request, as Redis does."""

    ranks: int = 8
    streams: int = 8  # parallel transfers of `lazyck cache pull`
    start: float = 2.0  # all ranks start within this time
    noise: float = 0.1  # share by which compiles of the same unit differ
    look: float = 0.1  # to start the helper
    cores: int = 0  # cores that all hosts share where they are one machine; 0: each host has enough of its own
    compile_cpu: float = 0.0  # CPU seconds of each compile on shared cores, besides its seconds
    request_cpu: float = 0.0  # CPU seconds of each request on shared cores
    round_trip: float = 1e-3
    requests: float = 20e3  # requests that the remote answers in a second
    link: float = 1.25e9
    host_link: float = 1.25e9
    short_queue: float = 0.05  # up to here, several requests of a host are simulated as one event
    timeout: float = 10.0
    connect: float = 2.0
    slowest: float = 256 * 1024  # what comes more slowly, in bytes a second, is given up (lazyck/remote/tiers.py)
    down: float = 60.0
    first_poll: float = 0.2
    last_poll: float = 2.0
    renewal: float = 5.0
    patience: float = 1200.0
    atomic: bool = False
    simulated: int = 100  # hosts that are simulated one by one
    seed: int = 7


@dataclass(frozen=True)
class Policy:
    """Says how hosts obtain entries. `parallel` entries at a time: 1 for first calls, LAZYCK_JOBS
    with LAZYCK_PREFETCH. `jitter` is the largest delay of a compile's start, as a share of it."""

    name: str
    parallel: int = 1
    has_remote: bool = True
    has_leases: bool = True
    is_pulled: bool = False
    jitter: float = 0.0


@dataclass(frozen=True)
class Late:
    """Describes the first calls that no profile covers: each host makes `each` of them, at random
    moments of `seconds` after it is ready, from the calls in `pool`."""

    pool: tuple[Call, ...]
    each: int
    seconds: float


@dataclass(frozen=True)
class World:
    """Describes what a fleet calls, and what is there when it starts.

    With `upgraded`, every second host has another build of the library, which makes these calls,
    and a cache full of `calls`. `spoiled` holds for the one tier, or with `has_near_tier` for a
    read-only tier before it. `filled` is what the tiers have.
    """

    calls: tuple[Call, ...]
    filled: tuple[Unit, ...] = ()
    upgraded: tuple[Call, ...] = ()
    late: Late | None = None
    spoiled: Spoiled | None = None
    has_near_tier: bool = False
    service: ServiceParameters | None = None


@dataclass
class Figures:
    """Counts what hosts did."""

    compiles: int = 0
    core_seconds: float = 0.0  # of these compiles
    background: int = 0  # whole files that hosts began to obtain because they had compiled several kernels
    taken_over: int = 0  # entries of the same text
    refused: int = 0
    failed: int = 0  # compiles that failed
    given_up: int = 0  # times that a tier was taken to be down


@dataclass
class Result(Figures):
    """Holds the result of one run. `median` and `last` are seconds of ranks until they have all
    that they call, or that their profile names; requests, bytes and their peaks in one second are
    those of the shared tier. Late calls are those that no profile covers; waits are in seconds."""

    hosts: int = 0
    median: float = 0.0
    last: float = 0.0
    requests: int = 0
    peak_requests: int = 0
    bytes: float = 0.0
    peak_bytes: float = 0.0
    cas_bytes: float = 0.0
    longest_queue: float = 0.0
    late_calls: int = 0
    late_compiles: int = 0
    late_wait: float = 0.0  # the median's
    longest_late_wait: float = 0.0
    mixed: int = 0  # entries that were loaded and are of another build, or poisoned


class Fleet:
    """Simulates all hosts under one policy."""

    def __init__(self, policy: Policy, hosts: int, p: Parameters, world: World) -> None:
        self.env = simpy.Environment()
        self.policy, self.hosts, self.p, self.world = policy, hosts, p, world
        self.random = random.Random(p.seed)
        self.cores = Link(self.env, p.cores, 1.0, {}) if p.cores else None  # shared equally, like a link
        common = self._tier(True, None if world.has_near_tier else world.spoiled)
        self.tiers = ([self._tier(False, world.spoiled)] if world.has_near_tier else []) + [common]
        self.shared: Tier | None = common if policy.has_remote else None  # the tier of the leases
        self.service: Service | None = None
        if world.service:
            self.service = Service(self.env, world.service, p.host_link, p.round_trip, self.count_compile)
        self.figures = Figures()
        self.compiled: Counter[str] = Counter()  # compiles of each key
        self.late_waits: list[float] = []  # of each late call
        self.loaded: set[tuple[str, str, str]] = set()  # key, the text that it needs, the text of what was loaded
        self.ready: list[float] = []  # the time at which each rank has all that it calls
        for tier in self.tiers:
            for unit in world.filled:
                tier.fill(unit)

    def count_compile(self, unit: Unit, count: int) -> None:
        """Count compiles of a unit."""
        self.figures.compiles += count
        self.figures.core_seconds += count * unit.seconds
        self.compiled[unit.key] += count

    def run(self) -> Result:
        """Run until the last rank has all that it calls, and late calls are over."""
        groups = min(self.hosts, self.p.simulated)
        for i in range(groups):
            weight = self.hosts // groups + (i < self.hosts % groups)
            starts = sorted(self.random.uniform(0, self.p.start) for _ in range(self.p.ranks))
            self.env.process(self._host(i, weight, starts))
        self.env.run()
        tier, service, late = self.tiers[-1], self.service, self.late_waits
        covered = {unit.key for unit in units_of((*self.world.calls, *self.world.upgraded))}
        covered |= {call.source.whole.key for call in self.world.calls}  # in the background
        return Result(
            **asdict(self.figures), hosts=self.hosts, median=statistics.median(self.ready), last=max(self.ready),
            requests=sum(tier.requests.values()), peak_requests=max(tier.requests.values(), default=0),
            bytes=sum(tier.bytes.values()), peak_bytes=max(tier.bytes.values(), default=0.0),
            cas_bytes=sum(service.bytes.values()) if service else 0.0,
            longest_queue=service.longest_queue if service else 0.0, late_calls=len(late),
            late_compiles=sum(count for key, count in self.compiled.items() if key not in covered),
            late_wait=statistics.median(late or [0.0]), longest_late_wait=max(late, default=0.0),
            mixed=sum(wanted != got for _, wanted, got in self.loaded),
        )  # fmt: skip

    def _tier(self, is_writable: bool, spoiled: Spoiled | None) -> Tier:
        p = self.p
        return Tier(self.env, p.requests, p.link, p.host_link, p.round_trip, is_writable, spoiled)

    def _host(self, number: int, weight: int, starts: list[float]) -> Steps:
        host = Host(self, weight)
        calls = self.world.calls
        if self.world.upgraded and number % 2:
            for unit in units_of(calls):
                host.local[unit.key] = host.local[unit.by_text.key] = Entry(unit.text, unit.text)
            calls = self.world.upgraded
        yield self.env.timeout(starts[0])
        lanes = self.p.streams if self.policy.is_pulled else self.policy.parallel
        todo = iter(work_of(host, calls, is_prefetch=lanes > 1))
        yield self.env.all_of([self.env.process(host.work_off(todo)) for _ in range(lanes)])
        self.ready += [max(self.env.now, start) for start in starts for _ in range(weight)]
        if late := self.world.late:
            for call in self.random.sample(late.pool, late.each):
                self.env.process(self._late(host, call, self.random.uniform(0, late.seconds)))

    def _late(self, host: Host, call: Call, moment: float) -> Steps:
        yield self.env.timeout(moment)
        begun = self.env.now
        yield from host.call(call)
        self.late_waits += [self.env.now - begun] * host.weight


def units_of(calls: Sequence[Call]) -> list[Unit]:
    """Return the entries that the calls need, each once, those that compile longest first."""
    found: dict[str, Unit] = {}
    for call in calls:
        if call.kernel is None or call.source.host is None:
            found[call.source.whole.key] = call.source.whole
        else:
            for unit in (call.source.host, call.source.kernels[call.kernel]):
                found[unit.key] = unit
    return sorted(found.values(), key=lambda unit: -unit.seconds)


def work_of(host: Host, calls: Sequence[Call], is_prefetch: bool) -> list[Callable[[], Steps]]:
    """Return what a host does, in this order: the calls or, with a prefetch, every entry that they
    need."""
    if not is_prefetch:
        return [partial(host.call, call) for call in calls]
    todo: dict[str, Callable[[], Steps]] = {}
    for call in calls:
        if call.kernel is not None and call.source.host is not None:
            todo[call.source.host.key] = partial(host.obtain_host_unit, call.source)
            todo[call.source.kernels[call.kernel].key] = partial(host.obtain_kernel, call.source, call.kernel)
    return [todo.get(unit.key, partial(host.obtain, unit)) for unit in units_of(calls)]
