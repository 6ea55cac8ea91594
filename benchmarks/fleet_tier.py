"""Model a tier of LAZYCK_REMOTE: a queue of requests, a link, entries and leases."""

import zlib
from dataclasses import dataclass, field

import simpy
from fleet_link import Link
from fleet_units import Unit

POISON = "poison"  # the text of an entry that nobody's compiler made


@dataclass(frozen=True)
class Entry:
    """Describes what a tier has under a key: the text that its contents were made of, the one that
    its record tells the digest of, and whether someone trusted signed that record."""

    text: str
    recorded: str
    is_signed: bool = True


@dataclass(frozen=True)
class Spoiled:
    """Says which share of a tier's entries is bad. `unsigned`: nobody trusted has signed them;
    otherwise the contents are not those of the record. With `is_lasting` the tier goes on giving
    bad answers after someone has put a good entry there."""

    share: float
    unsigned: bool = True
    is_lasting: bool = False

    def entry(self, unit: Unit) -> Entry:
        """Return the bad entry of a unit."""
        return Entry(POISON, POISON, is_signed=False) if self.unsigned else Entry(POISON, unit.text)

    def covers(self, unit: Unit) -> bool:
        """Return whether the entry of a unit is a bad one."""
        return zlib.crc32(unit.key.encode()) < self.share * 2**32


@dataclass
class Tier:
    """Holds a tier's entries and leases, and counts what was asked of it in each second.

    `rate` is in requests a second, which are answered in the order of their arrival; `link` and
    `host_link` are in bytes a second each way.
    """

    env: simpy.Environment
    rate: float
    link: float
    host_link: float
    round_trip: float
    is_writable: bool = True
    spoiled: Spoiled | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)  # key → host
    failures: dict[str, int] = field(default_factory=dict)  # key → holders that ended without an entry
    requests: dict[int, int] = field(default_factory=dict)
    bytes: dict[int, float] = field(default_factory=dict)
    free_at: float = 0.0

    def __post_init__(self) -> None:
        self.down = Link(self.env, self.link, self.host_link, self.bytes)
        self.up = Link(self.env, self.link, self.host_link, self.bytes)

    @property
    def queue(self) -> float:
        """Return how many seconds a request waits now."""
        now: float = self.env.now
        return max(0.0, self.free_at - now)

    def ask(self, count: int, weight: int) -> float:
        """Queue `count` requests, one after the other, of each of `weight` hosts. Return the
        seconds until the last answer."""
        now: float = self.env.now
        self.requests[int(now)] = self.requests.get(int(now), 0) + count * weight
        self.free_at = max(self.free_at, now) + count * weight / self.rate
        return self.free_at - now + count * self.round_trip

    def fill(self, unit: Unit) -> None:
        """Have an entry from the beginning."""
        is_bad = self.spoiled is not None and self.spoiled.covers(unit)
        self.entries[unit.key] = self.spoiled.entry(unit) if self.spoiled and is_bad else Entry(unit.text, unit.text)

    def read(self, unit: Unit) -> Entry | None:
        """Return what the tier has for a unit."""
        if self.spoiled and self.spoiled.is_lasting and self.spoiled.covers(unit):
            return self.spoiled.entry(unit)
        return self.entries.get(unit.key)
