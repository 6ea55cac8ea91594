"""Waits for this process's turn: of many hosts that miss an entry at the same time, one compiles,
and the others wait."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _lazyck.remote.entry_name import EntryName
from _lazyck.remote.lease import Lease, State
from _lazyck.remote.place import TierDown
from _lazyck.remote.remote import Fetched, Remote

_SHORTEST, _LONGEST = 0.2, 2.0  # seconds between two looks
_FIRST_WORD, _NEXT_WORD = 5.0, 30.0


@dataclass(frozen=True)
class Turn:
    """How the waiting ended: with the entry, or with permission to compile, under a lease if there
    is one."""

    fetched: Fetched | None = None
    lease: Lease | None = None


def wait_for_turn(
    remote: Remote,
    entry: EntryName,
    to: Path,
    patience: float,
    sleep: Callable[[float], None],
    say: Callable[[str], None],
) -> Turn:
    """Wait at most `patience` seconds until the entry can be fetched, or this process may compile
    it.

    `sleep` may raise, if the caller has gone. A remote that fails meanwhile ends the waiting there.
    """
    began = time.monotonic()
    next_word = began + _FIRST_WORD
    # Each time a tier fails, the next one may do.
    for _ in remote.places:
        lease = remote.lease(entry)
        if lease is None:
            break
        try:
            for look in itertools.count():
                state = lease.look()
                if state is State.HOPELESS:
                    return Turn(lease=lease)
                # A look for the entry is cheaper than taking the lease. The first round needs none,
                # since the caller has just looked.
                if look:
                    if lease.is_done:
                        remote.look_again(lease.place)
                    refusals = remote.refusals
                    if fetched := _fetch(remote, lease, entry, to):
                        return Turn(fetched)
                    if lease.is_done and remote.refusals > refusals:
                        # What the others make is not believed here, or the tier spoils it, so
                        # nothing is won by waiting for one after the other.
                        return Turn()
                if state is State.FREE and lease.take():
                    # The last holder may have finished just before.
                    if fetched := _fetch(remote, lease, entry, to):
                        lease.release(True)
                        return Turn(fetched)
                    return Turn(lease=lease)
                now = time.monotonic()
                if now - began > patience:
                    return Turn(lease=lease)
                if now > next_word:
                    next_word = now + _NEXT_WORD
                    say(f"waiting for {lease.holder or 'another host'}, which is compiling it ({now - began:.0f} s)")
                sleep(min(max(_SHORTEST, (now - began) / 10), _LONGEST) * random.uniform(0.5, 1.5))
        except TierDown as e:
            remote.listener.skipped(e.message)
    return Turn()


def _fetch(remote: Remote, lease: Lease, entry: EntryName, to: Path) -> Fetched | None:
    return remote.fetch(entry, to) if remote.find(lease.place, entry) is not None else None
