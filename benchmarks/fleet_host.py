"""Model a host of a fleet: how it obtains entries, by the rules of lazyck's runtime and
lazyck/remote."""

import enum
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import simpy
from fleet_tier import Entry, Tier
from fleet_units import Call, Source, Unit

if TYPE_CHECKING:
    from fleet_model import Fleet

Steps = Generator[simpy.Event, Any, Any]
# lazyck/runtime/src/library/readiness.cpp: k_kernels_for_a_source
KERNELS_FOR_A_SOURCE = 5
MOST_FAILURES = 3  # lazyck/remote/lease.py


class Turn(enum.Enum):
    """The result of waiting for other hosts: the entry, the lease, or nobody to wait for."""

    FETCHED = enum.auto()
    LEASE = enum.auto()
    ALONE = enum.auto()


class Host:
    """Simulates one host or, with a `weight`, as many equal hosts that do everything at the same
    moment. Of these, one takes part in leases, and the others fetch what it has made."""

    def __init__(self, fleet: "Fleet", weight: int) -> None:
        self.fleet, self.env, self.p, self.policy = fleet, fleet.env, fleet.p, fleet.policy
        self.random, self.weight = fleet.random, weight
        self.local: dict[str, Entry] = {}  # key → entry
        self._under_way: dict[str, simpy.Event] = {}
        self._down_until: dict[int, float] = {}  # by the tier's number
        self._refused: set[tuple[int, str]] = set()  # tier and key, each said once
        # The tier, the key and the recorded text of contents that were not what their record says.
        self._bad: set[tuple[int, str, str]] = set()
        self._refusals = 0
        self._compiled: Counter[str] = Counter()  # kernels of a source that this host compiled

    # -- calls -------------------------------------------------------------------------------------

    def work_off(self, todo: Iterator[Callable[[], Steps]]) -> Steps:
        """Do one thing after the other. Several of these may share `todo`."""
        for each in todo:
            yield from each()

    def call(self, call: Call) -> Steps:
        """Obtain what a first call needs."""
        source = call.source
        if call.kernel is None or source.host is None or source.whole.key in self.local:
            yield from self.obtain(source.whole)
            return
        yield from self.obtain_host_unit(source)
        if source.whole.key not in self.local:
            yield from self.obtain_kernel(source, call.kernel)

    def obtain_host_unit(self, source: Source) -> Steps:
        """Obtain the host unit of a source, unless a remote has all of the source."""
        assert source.host is not None
        if source.host.key in self.local:
            return
        if self.policy.has_remote and not self.policy.is_pulled:
            yield from self._start_helper()
            if (yield from self._fetch(source.whole)):
                return
        yield from self.obtain(source.host)

    def obtain_kernel(self, source: Source, kernel: int) -> Steps:
        """Obtain a kernel unit. After several compiles, compile the whole file in the
        background."""
        if (yield from self.obtain(source.kernels[kernel])) and len(source.kernels) >= 2 * KERNELS_FOR_A_SOURCE:
            self._compiled[source.whole.key] += 1
            if self._compiled[source.whole.key] == KERNELS_FOR_A_SOURCE:
                self.fleet.figures.background += self.weight
                self.env.process(self.obtain(source.whole))

    def obtain(self, unit: Unit) -> Steps:
        """Obtain an entry; return whether this host compiled it. Where the compile fails, ask again
        and again, as the readiness probe of a server does."""
        while unit.key in self._under_way:
            yield self._under_way[unit.key]
        if unit.key in self.local:
            return False
        done = self._under_way[unit.key] = self.env.event()
        pause = 1.0
        is_compiled = False
        while unit.key not in self.local:
            is_compiled = yield from self._try_to_obtain(unit)
            if unit.key not in self.local:
                self.fleet.figures.failed += self.weight
                yield self.env.timeout(pause * self.random.uniform(0.75, 1.25))
                pause = min(2 * pause, self.p.down)
        del self._under_way[unit.key]
        done.succeed()
        return is_compiled

    def _try_to_obtain(self, unit: Unit) -> Steps:
        self._bad = {bad for bad in self._bad if bad[1] != unit.key}  # a helper's memory ends with it
        seconds = unit.seconds * self.random.uniform(1 - self.p.noise, 1 + self.p.noise)
        turn = Turn.ALONE
        if self.policy.has_remote:
            if not self.policy.is_pulled or self.fleet.cores:
                yield from self._start_helper()
            if (yield from self._fetch(unit)):
                return False
            if self.policy.jitter:
                yield self.env.timeout(self.random.uniform(0, self.policy.jitter * seconds))
                if (yield from self._fetch(unit)):
                    return False
            if self.policy.has_leases:
                turn = yield from self._wait_for_turn(unit)
                if turn is Turn.FETCHED:
                    return False
        return (yield from self._make(unit, seconds, turn is Turn.LEASE))

    # -- compiles ----------------------------------------------------------------------------------

    def _make(self, unit: Unit, seconds: float, is_leased: bool) -> Steps:
        """Compile, or take over an entry of the same text; return whether it was compiled."""
        reading = seconds * unit.reading / unit.seconds
        has_text, text_turn = False, Turn.ALONE
        if reading and not self.fleet.service:
            yield self.env.timeout(reading)
            has_text = unit.by_text.key in self.local
            if not has_text and self.policy.has_remote:
                yield from self._start_helper()
                has_text = yield from self._fetch(unit.by_text)
                if not has_text and self.policy.has_leases:
                    text_turn = yield from self._wait_for_turn(unit.by_text)
                    has_text = text_turn is Turn.FETCHED
            seconds -= reading
        others = 1 if is_leased else self.weight
        if has_text:
            self.fleet.figures.taken_over += others
            self._keep(unit, self.local[unit.by_text.key])
        elif (yield from self._compile(unit, seconds, is_leased)):
            if self.fleet.service is None:
                self.fleet.count_compile(unit, others)
            self._keep(unit, Entry(unit.text, unit.text))
        else:
            self._release(unit, is_leased, is_made=False)
            return False
        if self.policy.has_remote:
            self.env.process(self._share(unit, is_leased))
            if reading and not has_text and not self.fleet.service:
                self.local[unit.by_text.key] = self.local[unit.key]
                self.env.process(self._share(unit.by_text, text_turn is Turn.LEASE))
        return not has_text

    def _compile(self, unit: Unit, seconds: float, is_leased: bool) -> Steps:
        """Compile here or by the service; return whether that succeeded."""
        service = self.fleet.service
        if service is None:
            yield from self._use_cores(self.p.compile_cpu)
            yield self.env.timeout(seconds)
        elif service.answers:
            yield from service.execute(unit, seconds, 1 if is_leased else self.weight)
        else:
            yield self.env.timeout(self.p.connect)
            return False
        return True

    def _start_helper(self) -> Steps:
        if self.fleet.cores is None:
            yield self.env.timeout(self.p.look)
        else:
            yield from self._use_cores(self.p.look)

    def _use_cores(self, seconds: float) -> Steps:
        """Work for so many seconds on the cores that all hosts share."""
        if self.fleet.cores is not None and seconds:
            yield self.fleet.cores.transfer(seconds)[1]

    # -- the remote --------------------------------------------------------------------------------

    def _keep(self, unit: Unit, entry: Entry) -> None:
        self.local[unit.key] = entry
        self.fleet.loaded.add((unit.key, unit.text, entry.text))

    def _ask(self, tier: Tier, count: int = 1, weight: int = 0) -> Steps:
        """Send requests, one after the other; return whether they were answered in time."""
        if self.env.now < self._down_until.get(id(tier), 0.0):
            return False
        yield from self._use_cores(count * self.p.request_cpu)
        while count:
            together = count if tier.queue < self.p.short_queue else 1  # at a busy tier, one waits for the other
            wait = tier.ask(together, weight or self.weight)
            if wait > self.p.timeout:
                yield self.env.timeout(self.p.timeout)
                self._give_up(tier)
                return False
            yield self.env.timeout(wait)
            count -= together
        return True

    def _give_up(self, tier: Tier) -> None:
        """Pass a tier over for a while. (What times out took so long that the pause is the
        longest.)"""
        self.fleet.figures.given_up += self.weight
        self._down_until[id(tier)] = self.env.now + self.p.down * self.random.uniform(0.75, 1.25)

    def _find(self, tier: Tier, unit: Unit) -> Entry | None:
        """Return what the tier has to believe, by the record. Contents that were wrong once are not
        fetched again from that tier, until somebody may have replaced them."""
        entry = tier.read(unit)
        if entry is None or (id(tier), unit.key, entry.recorded) in self._bad:
            return None
        if entry.is_signed:
            return entry
        self._refuse(tier, unit)
        return None

    def _refuse(self, tier: Tier, unit: Unit) -> None:
        self._refusals += 1
        if (id(tier), unit.key) not in self._refused:
            self._refused.add((id(tier), unit.key))
            self.fleet.figures.refused += self.weight

    def _fetch(self, unit: Unit) -> Steps:
        """Fetch the record, then the contents, from the nearest tier that has an entry to believe;
        return whether they came."""
        for number, tier in enumerate(self.fleet.tiers):
            if not (yield from self._ask(tier)):
                continue
            entry = self._find(tier, unit)
            if entry is None or not (yield from self._download(tier, unit)):
                continue
            if entry.text != entry.recorded:
                self._bad.add((id(tier), unit.key, entry.recorded))
                self._refuse(tier, unit)
                continue
            self._keep(unit, entry)
            for nearer in self.fleet.tiers[:number]:
                if nearer.is_writable:
                    self.env.process(self._push(nearer, unit, self.weight))
            return True
        return False

    def _download(self, tier: Tier, unit: Unit) -> Steps:
        if not (yield from self._ask(tier)):
            return False
        number, done = tier.down.transfer(unit.size, self.weight)
        yield done | self.env.timeout(self.p.connect + self.p.timeout + unit.size / self.p.slowest)
        if done.processed:
            return True
        tier.down.give_up(number)
        self._give_up(tier)
        return False

    def _share(self, unit: Unit, is_leased: bool) -> Steps:
        """Push an entry to the writable tiers, that of the leases first, and give the lease
        back."""
        weight = 1 if is_leased else self.weight
        for tier in sorted((t for t in self.fleet.tiers if t.is_writable), key=lambda t: t is not self.fleet.shared):
            yield from self._push(tier, unit, weight)
            if tier is self.fleet.shared:
                self._release(unit, is_leased, is_made=True)
                if is_leased and self.weight > 1:  # the hosts that this one stands for fetch it
                    tier.ask(2, self.weight - 1)
                    tier.down.transfer(unit.size, self.weight - 1)

    def _push(self, tier: Tier, unit: Unit, weight: int) -> Steps:
        """Push, as lazyck/remote/remote.py does: read the record, ask for the contents' size,
        and unless both are good, upload the contents, then the record."""
        if not (yield from self._ask(tier, 2, weight)):
            return
        if self._find(tier, unit):
            return
        if not (yield from self._ask(tier, 1, 1)):  # of equal hosts, the first one uploads
            return
        _, done = tier.up.transfer(unit.size)
        yield done
        if (yield from self._ask(tier, 1, 1)):
            tier.entries[unit.key] = Entry(self.local[unit.key].text, unit.text)

    # -- leases, by the steps of lazyck/remote/helper.py -----------------------------------------

    def _wait_for_turn(self, unit: Unit) -> Steps:
        tier = self.fleet.shared
        if tier is None:
            return Turn.ALONE
        began, is_first, was_held = self.env.now, True, False
        while True:
            if not (yield from self._ask(tier, 1 if is_first else 2)):  # who has the lease, and the entry's record
                return Turn.ALONE
            if tier.failures.get(unit.key, 0) >= MOST_FAILURES:
                return Turn.ALONE
            is_held = unit.key in tier.leases
            is_done, was_held = was_held and not is_held and not tier.failures.get(unit.key), is_held
            if is_done:
                self._bad = {bad for bad in self._bad if bad[0] != id(tier)}
            refusals = self._refusals
            if not is_first and self._find(tier, unit) and (yield from self._fetch(unit)):
                return Turn.FETCHED
            if is_done and self._refusals > refusals:
                return Turn.ALONE
            is_first = False
            if unit.key not in tier.leases and (yield from self._take(tier, unit)):
                if (yield from self._fetch(unit)):
                    self._release(unit, True, is_made=True)
                    return Turn.FETCHED
                self.env.process(self._renew(tier, unit))
                return Turn.LEASE
            waited = self.env.now - began
            if self.env.now < self._down_until.get(id(tier), 0.0) or waited > self.p.patience:
                return Turn.ALONE
            pause = min(max(self.p.first_poll, waited / 10), self.p.last_poll)
            yield self.env.timeout(pause * self.random.uniform(0.5, 1.5))

    def _take(self, tier: Tier, unit: Unit) -> Steps:
        """Return whether this host now has the lease, which was free a moment ago."""
        began = self.env.now
        if not (yield from self._ask(tier)):
            return False
        if not self.p.atomic or unit.key not in tier.leases:
            tier.leases[unit.key] = id(self)  # without conditional writes the last one to write has the lease
        if not self.p.atomic:
            yield self.env.timeout(self.random.uniform(0.15, 0.25) + 2 * (self.env.now - began))
            yield from self._ask(tier)
        return tier.leases.get(unit.key) == id(self)

    def _renew(self, tier: Tier, unit: Unit) -> Steps:
        """Renew the lease for as long as this host has it."""
        while tier.leases.get(unit.key) == id(self):
            tier.ask(2, 1)
            yield self.env.timeout(self.p.renewal)

    def _release(self, unit: Unit, is_leased: bool, is_made: bool) -> None:
        """Give the lease back: read it, then delete it or write that its holder has failed."""
        tier = self.fleet.shared
        if not is_leased or tier is None:
            return
        tier.ask(2, 1)
        if not is_made:
            tier.failures[unit.key] = tier.failures.get(unit.key, 0) + 1
        if tier.leases.get(unit.key) == id(self):
            del tier.leases[unit.key]
