"""Receive what comes back from a farm: entries by the remote cache, and logs and times in the
answers of workers."""

from __future__ import annotations

import contextlib

from _lazyck.costs import keep_guess
from _lazyck.errors import LazyckError
from _lazyck.files import write_atomic
from _lazyck.prebuild.entries import Entry
from _lazyck.prebuild.farm.orders import Made
from _lazyck.remote import EntryName, Remote


def fetch(remote: Remote, entry: Entry) -> bool:
    """Fetch an entry, and return whether it is in its place. It is checked as the runtime would
    check it."""
    if entry.path.is_file():
        return True
    make_room(entry)
    return remote.fetch(EntryName(entry.key, entry.place), entry.path) is not None


def make_room(entry: Entry) -> None:
    """Make the directories of an entry. The runtime refuses those that others can write to."""
    entry.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in reversed(entry.path.parents[:3]):
        directory.mkdir(mode=0o700, exist_ok=True)


def keep_log(entry: Entry, made: Made) -> str:
    """Write the compiler's output where a local build would have it. Returns the path, or an empty
    string if there is none."""
    if not made.log:
        return ""
    write_atomic(entry.log, made.log.encode(errors="surrogateescape"), 0o600)
    return str(entry.log)


def keep_cost(entry: Entry, made: Made) -> None:
    """Record what the compile took on the worker, as a guess for the next time here."""
    if made.cost is None:
        return
    with contextlib.suppress(OSError, LazyckError):  # the entry is there without its cost
        keep_guess(entry.root, *entry.cost_key, *made.cost)
