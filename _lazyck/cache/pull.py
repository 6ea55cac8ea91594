"""Pulls entries of a library from a remote into the local cache."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _lazyck import abi
from _lazyck.cache import sweep
from _lazyck.cache.transfer import Item, Outcome, Reporter, Share, add_up, items_of, open_remote, run
from _lazyck.costs import keep_guess
from _lazyck.directory import directory_below
from _lazyck.errors import LazyckError
from _lazyck.layout import root_of
from _lazyck.prebuild.entries import Entry, tool
from _lazyck.remote import Remote
from _lazyck.remote.record import Record
from _lazyck.staging import Staging

_BATCH = 64  # entries that are verified and published together


def pull(share: Share, found: Sequence[Entry]) -> Outcome:
    """Pull the entries that the cache lacks: fetch them, verify them as `cache verify` does,
    publish them. Raises `RemoteError`."""
    todo = [e for e in found if not e.cached]
    skipped: dict[str, None] = {}  # each message once
    remote = open_remote(share.env, skipped.setdefault)
    outcomes = [Outcome(there=len(found) - len(todo))]
    with contextlib.closing(Reporter(len(todo), skipped)) as reporter:
        puller = _Puller(share, remote, reporter)
        for at in range(0, len(todo), _BATCH):
            outcomes += puller.pull(todo[at : at + _BATCH])
    return add_up(outcomes)


@dataclass
class _Puller:
    _share: Share
    _remote: Remote
    _reporter: Reporter
    _records: dict[str, Record] = field(default_factory=dict)  # of what was fetched, by the entry's name

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
            verified = sweep.verify(tool(self._share.env), stage, self._share.env)
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
                    keep_guess(root, e.library, e.blob, e.archs, record.seconds, record.peak_kib)
            return [self._refused(bad[o.done[0]]) if o.done and o.done[0] in bad else o for o in outcomes]

    def _ask(self, item: Item) -> Outcome:
        for place in self._remote.places:
            with contextlib.suppress(LazyckError):
                if record := self._remote.find(place, item.entry):
                    return Outcome((item.entry.name,), record.size)
        return self._without(item)

    def _fetch(self, item: Item) -> Outcome:
        stage = root_of(item.path)
        with directory_below(stage, item.path.parent.relative_to(stage), makes=True):
            fetched = self._remote.fetch(item.entry, item.path)
        if not fetched:
            return self._without(item)
        self._records[item.entry.name] = fetched.record
        return Outcome((item.entry.name,), fetched.record.size)

    def _without(self, item: Item) -> Outcome:
        """Return the outcome for an entry that no remote delivered."""
        if problems := self._remote.problems_of(item.entry):
            return self._refused(problems[0])
        if any(place.why_down() for place in self._remote.places):
            return Outcome(left=1)
        return Outcome(absent=1)

    def _refused(self, text: str) -> Outcome:
        self._reporter.note(f"refused: {text}")
        return Outcome(refused=(text,))


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
