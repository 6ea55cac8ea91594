"""Leases, which tell which of many hosts compiles an entry, so that the others wait for it.

A lease is an object in a remote, of at most 1,000 bytes of UTF-8:
    "lazyck lease 1\\n<token>\\n<host>\\n<counter>\\n<seconds>\\n<failures>\\n"
The token is its holder's, or "free" if there is none. The counter grows with each renewal. A lease
that stays unchanged for <seconds> is over. <failures> counts holders that ended without an entry.
What does not parse is a lease of an unknown holder, and over once it stays unchanged. No clocks are
compared: each waiting host measures by its own.
"""

import enum
import random
import re
import secrets
import time
from dataclasses import dataclass, replace

from lazyck.remote.entry_name import EntryName
from lazyck.remote.tier_client import TierClient

LARGEST = 1000
FREE = "free"
# After so many failures the blob itself most likely fails, so hosts stop waiting.
MOST_FAILURES = 3
_KEPT = 600.0  # seconds for which a backend that expires objects remembers failures
_TEXT = re.compile(
    r"lazyck lease 1\n(?P<token>[0-9a-z]{1,64})\n(?P<host>[\x21-\x7e]{1,255})\n\d{1,9}\n"
    r"(?P<seconds>\d{1,4}(?:\.\d{1,3})?)\n(?P<failures>\d{1,4})\n",
    re.ASCII,
)


@dataclass(frozen=True)
class Holder:
    token: str
    host: str
    counter: int
    seconds: float
    failures: int

    def encode(self) -> bytes:
        words = ("lazyck lease 1", self.token, self.host, self.counter, f"{self.seconds:.3f}", self.failures)
        return "".join(f"{w}\n" for w in words).encode()


def decode(data: bytes, seconds: float) -> Holder:
    """Return what a lease says. `seconds` is the duration of a lease that does not parse."""
    found = _TEXT.fullmatch(data[: LARGEST + 1].decode("utf-8", "replace"))
    if not found:
        return Holder("unknown", "unknown", 0, seconds, 0)
    lasts = min(max(float(found["seconds"]), 0.1), 600.0)
    return Holder(found["token"], found["host"], 0, lasts, int(found["failures"]))


class LeaseState(enum.Enum):
    """The state of a lease: it may be taken, a host has it, or waiting is useless."""

    FREE = "free"
    HELD = "held"
    HOPELESS = "hopeless"


class Lease:
    """Our part in the lease of one entry, at one tier. Methods raise `TierDown`."""

    def __init__(self, client: TierClient, entry: EntryName, seconds: float, host: str) -> None:
        self.client = client
        self._name = entry.lease
        self._own = Holder(secrets.token_hex(16), re.sub(r"[^\x21-\x7e]", "_", host)[:255] or "_", 0, seconds, 0)
        self._mine: bytes | None = None
        self._seen: bytes | None = None
        self._since = time.monotonic()
        self.is_done = False  # at the last look, another process had just ended with an entry

    @property
    def is_held(self) -> bool:
        return self._mine is not None

    @property
    def holder(self) -> str:
        """Return the host that had the lease at the last look, or an empty string."""
        return self._decode(self._seen).host if self._seen else ""

    def look(self) -> LeaseState:
        data = self.client.read(self._name, LARGEST)
        now = time.monotonic()
        was_held = bool(self._seen) and self._decode(self._seen or b"").token != FREE
        if data != self._seen:
            self._seen, self._since = data, now
        self.is_done = was_held and data is None
        if data is None:
            return LeaseState.FREE
        held = self._decode(data)
        self.is_done = was_held and held.token == FREE and held.failures == 0
        if held.failures >= MOST_FAILURES:
            return LeaseState.HOPELESS
        return LeaseState.FREE if held.token == FREE or now - self._since > held.seconds else LeaseState.HELD

    def take(self) -> bool:
        """Take the lease that `look` found free. Return False if another process was faster."""
        seen = self._seen
        failures = 0
        if seen is not None:
            held = self._decode(seen)
            failures = held.failures + (held.token != FREE)
        own = replace(self._own, counter=1, failures=failures)
        text = own.encode()
        began = time.monotonic()
        is_taken: bool | None
        if seen is None:
            is_taken = self.client.create(self._name, text, own.seconds)
        else:
            time.sleep(random.uniform(0, 0.1))
            if self.client.read(self._name, LARGEST) != seen:
                return False
            is_taken = self.client.replace(self._name, seen, text, own.seconds)
        if is_taken is None:
            # A concurrent writer has finished, unless it takes more than twice as long.
            time.sleep(random.uniform(0.15, 0.25) + 2 * (time.monotonic() - began))
            is_taken = self.client.read(self._name, LARGEST) == text
        if is_taken:
            self._own, self._mine = own, text
        return is_taken

    def renew(self) -> None:
        """Renew the lease. A lease that another process has taken meanwhile is given up."""
        if self._mine is None:
            return
        own = replace(self._own, counter=self._own.counter + 1)
        text = own.encode()
        data = self.client.read(self._name, LARGEST)
        if data is None:  # the backend has lost it, for example after a restart
            is_mine = self.client.create(self._name, text, own.seconds)
        elif self._is_own(data):  # not by its counter: what failed halfway may have been written
            is_mine = self.client.replace(self._name, data, text, own.seconds)
        else:
            is_mine = False
        if is_mine is False:
            self._mine = None
        else:
            self._own, self._mine = own, text

    def release(self, is_made: bool) -> None:
        """Let others have the lease, since the entry is there or this process ends without one."""
        was_held, self._mine = self._mine is not None, None
        if not was_held and not (is_made and self._seen):
            return
        data = self.client.read(self._name, LARGEST)
        if data is None or not (is_made or self._is_own(data)):
            return
        # Once the entry is there, the lease has no purpose, even if another host took it.
        if is_made and self.client.delete(self._name):
            return
        failures = 0 if is_made else self._own.failures + 1
        free = Holder(FREE, self._own.host, 0, _KEPT, failures)
        self.client.replace(self._name, data, free.encode(), _KEPT)

    def _is_own(self, data: bytes) -> bool:
        return self._decode(data).token == self._own.token

    def _decode(self, data: bytes) -> Holder:
        return decode(data, self._own.seconds)
