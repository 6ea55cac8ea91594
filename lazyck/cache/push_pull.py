"""Pulls entries of a library from a remote into the local cache, and pushes entries of the local
cache to a remote."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lazyck import abi
from lazyck.cache import sweep
from lazyck.cache.transfer import (
    Share,
    TransferItem,
    TransferOutcome,
    TransferReporter,
    add_up,
    items_of,
    open_remote,
    run,
)
from lazyck.directory import RefusedError, directory_below, opened_in, staging
from lazyck.errors import LazyckError, RemoteError
from lazyck.formats.layout import root_of
from lazyck.history.costs import keep_guess, read_last
from lazyck.prebuild.blob_entries import BlobEntry
from lazyck.remote import Remote
from lazyck.remote.entry_record import EntryRecord

_BATCH = 64  # entries that are verified and published together


def pull(share: Share, found: Sequence[BlobEntry]) -> TransferOutcome:
    """Pull the entries that the cache lacks: fetch them, verify them as `cache verify` does,
    publish them. Raises `RemoteError`."""
    todo = [e for e in found if not e.cached]
    skipped: dict[str, None] = {}  # each message once
    remote = open_remote(share.env, skipped.setdefault)
    outcomes = [TransferOutcome(there=len(found) - len(todo))]
    with contextlib.closing(TransferReporter(len(todo), skipped)) as reporter:
        puller = _Puller(share, remote, reporter)
        for at in range(0, len(todo), _BATCH):
            outcomes += puller.pull(todo[at : at + _BATCH])
    return add_up(outcomes)


@dataclass
class _Puller:
    _share: Share
    _remote: Remote
    _reporter: TransferReporter
    _records: dict[str, EntryRecord] = field(default_factory=dict)  # of what was fetched, by the entry's name

    def pull(self, batch: Sequence[BlobEntry]) -> list[TransferOutcome]:
        if self._share.dry_run:
            return run(items_of(batch), self._ask, self._share.jobs, self._reporter)
        root = batch[0].root
        with staging(root, "pull") as stage:
            staged = [TransferItem(i.entry, stage / abi.CACHE_VERSION / i.entry.name) for i in items_of(batch)]
            outcomes = run(staged, self._fetch, self._share.jobs, self._reporter)
            if not any(o.done for o in outcomes):
                return outcomes
            verified = sweep.verify(stage, self._share.env)
            bad = {}
            for item in staged:
                e = item.entry
                if not (record := self._records.get(e.name)):
                    continue
                if problem := verified.get(str(item.path), "it was not verified"):
                    bad[e.name] = f"{e.name}: {problem}"
                else:
                    publish(stage, root, e.name)
                    keep_guess(root, *e.entry_path.cost_key, record.seconds, record.peak_kib)
            return [self._refused(bad[o.done[0]]) if o.done and o.done[0] in bad else o for o in outcomes]

    def _ask(self, item: TransferItem) -> TransferOutcome:
        for client in self._remote.clients:
            with contextlib.suppress(LazyckError):
                if record := self._remote.find(client, item.entry):
                    return TransferOutcome((item.entry.name,), record.size)
        return self._without(item)

    def _fetch(self, item: TransferItem) -> TransferOutcome:
        stage = root_of(item.path)
        with directory_below(stage, item.path.parent.relative_to(stage), makes=True):
            fetched = self._remote.fetch(item.entry, item.path)
        if not fetched:
            return self._without(item)
        self._records[item.entry.name] = fetched.record
        return TransferOutcome((item.entry.name,), fetched.record.size)

    def _without(self, item: TransferItem) -> TransferOutcome:
        if problems := self._remote.problems_of(item.entry):
            return self._refused(problems[0])
        if any(client.why_down() for client in self._remote.clients):
            return TransferOutcome(left=1)
        return TransferOutcome(absent=1)

    def _refused(self, text: str) -> TransferOutcome:
        self._reporter.note(f"refused: {text}")
        return TransferOutcome(refused=(text,))


def publish(stage: Path, cache: Path, name: str) -> None:
    """Publish a verified file from a directory on the same file system, by one rename. It does not
    need the blob's lock, since a process that compiles the blob at this moment publishes the same
    entry."""
    path = Path(abi.CACHE_VERSION, name)
    with (
        directory_below(stage, path.parent) as own,
        directory_below(cache, path.parent, makes=True) as target,
        own.open_file(path.name) as file,
    ):
        os.fsync(file.fileno())  # on disk before it has a name
        own.move(path.name, target)


def push(share: Share, items: Sequence[TransferItem], unverified: Path | None) -> TransferOutcome:
    """Push the entries that the remote lacks. `unverified` is the cache of the items if they must
    be verified first. Raises `RemoteError`."""
    skipped: dict[str, None] = {}  # each message once
    remote = open_remote(share.env, skipped.setdefault)
    if not any(map(remote.may_push, remote.clients)):
        raise RemoteError(
            f"{abi.ENV_REMOTE} names no tier that may be written",
            f"name one that is not read-only, and call it trusted or set {abi.ENV_SIGN_KEY}",
        )
    todo, looked = _look(share, remote, items)
    with contextlib.closing(TransferReporter(len(todo), skipped)) as reporter:
        verified = sweep.verify(unverified, share.env) if unverified and todo else None

        def send(item: TransferItem) -> TransferOutcome:
            if problem := "" if verified is None else verified.get(str(item.path), "it was not verified"):
                reporter.note(f"refused: {item.path}: {problem}")
                return TransferOutcome(refused=(f"{item.path}: {problem}",))
            return _send(remote, item)

        return add_up([looked, *run(todo, send, share.jobs, reporter)])


def _look(share: Share, remote: Remote, items: Sequence[TransferItem]) -> tuple[list[TransferItem], TransferOutcome]:
    """Return the items that some tier lacks, and the outcome of the others."""
    todo: list[TransferItem] = []

    def look(item: TransferItem) -> TransferOutcome:
        if not (remote.shared_client() and remote.lacking(item.entry)):
            is_down = any(p.why_down(for_writes=True) for p in remote.clients if remote.may_push(p))
            return TransferOutcome(left=1) if is_down else TransferOutcome(there=1)
        if share.dry_run:
            return TransferOutcome((item.entry.name,), _size_of(item.path))
        todo.append(item)
        return TransferOutcome()

    looked = add_up(run(items, look, share.jobs))
    return sorted(todo, key=lambda i: i.entry.name), looked


def _size_of(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if it has vanished."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _send(remote: Remote, item: TransferItem) -> TransferOutcome:
    if remote.shared_client() is None:
        return TransferOutcome(left=1)
    e, root = item.entry, root_of(item.path)
    took = None
    with contextlib.suppress(OSError):
        took = read_last(root, *e.entry_path.cost_key)
    try:
        # The open file is read and signed, even if the directories above are exchanged.
        with opened_in(root, item.path) as own:
            has_it = remote.push(e, Path(f"/proc/self/fd/{own.fileno()}"), *(took or (0.0, 0)))
    except RefusedError as error:
        return TransferOutcome(refused=(error.message,))
    except OSError as error:
        return TransferOutcome(failed=(f"{item.path}: {error.strerror}",))
    if len(has_it) < sum(map(remote.may_push, remote.clients)):
        return TransferOutcome(failed=(e.name,))
    return TransferOutcome((e.name,), _size_of(item.path))
