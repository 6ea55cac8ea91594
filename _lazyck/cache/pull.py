"""Pulls entries of a library from a remote into the local cache."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from _lazyck import abi
from _lazyck.cache import sweep
from _lazyck.cache.share import Messages, Share, items_of, open_remote
from _lazyck.cache.transfer import Item, Outcome, Reporter, add_up, run
from _lazyck.costs import keep_guess
from _lazyck.directory import directory_below
from _lazyck.errors import LazyckError
from _lazyck.layout import root_of
from _lazyck.prebuild.entries import Entry
from _lazyck.remote import EntryName, Listener, Remote
from _lazyck.remote.record import Record
from _lazyck.staging import Staging

PULLED = "pulled"
_BATCH = 64  # entries that are verified and published together


def pull(share: Share, found: Sequence[Entry]) -> Outcome:
    """Pull the entries that the cache lacks: fetch them, verify them as `cache verify` does,
    publish them. Raises `RemoteError`."""
    todo = [e for e in found if not e.cached]
    reporter = share.reporter(len(todo))
    skipped = Messages()
    puller = _Puller(share, open_remote(share.env, Listener(lambda _: None, skipped.add)), reporter)
    outcomes = [Outcome(PULLED, there=len(found) - len(todo))]
    try:
        for at in range(0, len(todo), _BATCH):
            outcomes += puller.pull(todo[at : at + _BATCH])
    finally:
        reporter.close()
        for text in skipped.texts:
            reporter.note(f"lazyck: {text}")
    return add_up(PULLED, outcomes)


class _Puller:
    def __init__(self, share: Share, remote: Remote, reporter: Reporter) -> None:
        self._share = share
        self._remote = remote
        self._reporter = reporter
        self._records: dict[str, Record] = {}  # of what was fetched, by the entry's name

    def pull(self, batch: Sequence[Entry]) -> list[Outcome]:
        """Pull some entries, from asking for them to publishing them."""
        if self._share.dry_run:
            return run(items_of(batch), self._ask, self._share.jobs, self._reporter)
        root = batch[0].root
        with Staging(root, "pull") as stage:
            staged = [Item(i.entry, stage / abi.CACHE_VERSION / i.entry.name) for i in items_of(batch)]
            outcomes = run(staged, self._fetch, self._share.jobs, self._reporter)
            fetched = {name for o in outcomes for name in o.done}
            if not fetched:
                return outcomes
            verified = dict(sweep.verify(self._share.rt(), stage, self._share.env).entries)
            bad = {}
            for item in staged:
                name = item.entry.name
                if name not in fetched:
                    continue
                if problem := verified.get(str(item.path), "it was not verified"):
                    bad[name] = f"{name}: {problem}"
                else:
                    publish(stage, root, name)
                    e, record = item.entry, self._records[name]
                    keep_guess(root, *e.place.cost_key, record.seconds, record.peak_kib)
            return [self._refused(bad[o.done[0]]) if o.done and o.done[0] in bad else o for o in outcomes]

    def _ask(self, item: Item) -> Outcome:
        size = offered(self._remote, item.entry)
        return Outcome(PULLED, (item.entry.name,), size) if size else self._without(item)

    def _fetch(self, item: Item) -> Outcome:
        make_private(root_of(item.path), item.path.parent)
        fetched = self._remote.fetch(item.entry, item.path)
        if not fetched:
            return self._without(item)
        self._records[item.entry.name] = fetched.record
        return Outcome(PULLED, (item.entry.name,), fetched.record.size)

    def _without(self, item: Item) -> Outcome:
        """Return the outcome for an entry that no remote delivered."""
        if problems := self._remote.problems_of(item.entry):
            return self._refused(problems[0])
        if any(place.why_down() for place in self._remote.places):
            return Outcome(PULLED, left=1)
        return Outcome(PULLED, absent=1)

    def _refused(self, text: str) -> Outcome:
        self._reporter.note(f"lazyck: refused: {text}")
        return Outcome(PULLED, refused=(text,))


def offered(remote: Remote, entry: EntryName) -> int:
    """Return the size of the entry in the nearest tier with a trusted one, or 0 if there is
    none."""
    for place in remote.places:
        with contextlib.suppress(LazyckError):
            if record := remote.find(place, entry):
                return record.size
    return 0


def publish(stage: Path, cache: Path, name: str) -> None:
    """Publish a verified file from a directory on the same file system, by one rename. It does not
    need the blob's lock, since a process that compiles the blob at this moment publishes the same
    entry."""
    place = Path(abi.CACHE_VERSION, name)
    with (
        directory_below(stage, place.parent) as own,
        directory_below(cache, place.parent, makes=True) as target,
        own.open_file(place.name) as file,
    ):
        os.fsync(file.fileno())  # on disk before it has a name
        own.move(place.name, target)


def make_private(above: Path, path: Path) -> None:
    """Make a directory and those between, for this user alone, regardless of the umask."""
    for directory in reversed([path, *path.parents]):
        if directory.is_relative_to(above):
            directory.mkdir(mode=0o700, exist_ok=True)
