"""Pulling a library's entries out of a remote into the local cache."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from lazyck import abi
from lazyck.cache import sweep
from lazyck.cache.share import Messages, Share, items_of, open_remote
from lazyck.cache.transfer import Item, Outcome, Reporter, add_up, run
from lazyck.errors import LazyckError, RemoteError
from lazyck.prebuild.entries import Entry
from lazyck.remote import EntryName, Listener, Remote

PULLED = "pulled"
_BATCH = 64  # entries that are verified and published together


def pull(share: Share, found: Sequence[Entry]) -> Outcome:
    """Pull what the cache lacks: fetched, verified as `cache verify` does, published. Raises `RemoteError`."""
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

    def pull(self, batch: Sequence[Entry]) -> list[Outcome]:
        """Some entries, from the first question to their names in the cache."""
        if self._share.dry_run:
            return run(items_of(batch), self._ask, self._share.jobs, self._reporter)
        root = batch[0].root
        with staging(root) as stage:
            staged = [Item(i.entry, stage / abi.CACHE_VERSION / i.entry.name) for i in items_of(batch)]
            outcomes = run(staged, self._fetch, self._share.jobs, self._reporter)
            fetched = {name for o in outcomes for name in o.done}
            if not fetched:
                return outcomes
            problems = dict(sweep.verify(self._share.rt(), stage, self._share.env).problems)
            bad = {}
            for item in staged:
                name = item.entry.name
                if problem := problems.get(str(item.path)):
                    bad[name] = f"{name}: {problem}"
                elif name in fetched:
                    publish(item.path, root, name)
            return [self._refused(bad[o.done[0]]) if o.done and o.done[0] in bad else o for o in outcomes]

    def _ask(self, item: Item) -> Outcome:
        size = offered(self._remote, item.entry)
        return Outcome(PULLED, (item.entry.name,), size) if size else self._without(item)

    def _fetch(self, item: Item) -> Outcome:
        make_private(item.path.parents[3], item.path.parent)
        fetched = self._remote.fetch(item.entry, item.path)
        return Outcome(PULLED, (item.entry.name,), fetched.size) if fetched else self._without(item)

    def _without(self, item: Item) -> Outcome:
        """Nobody gave it: why."""
        if problems := self._remote.problems_of(item.entry):
            return self._refused(problems[0])
        if any(place.why_down() for place in self._remote.places):
            return Outcome(PULLED, left=1)
        return Outcome(PULLED, absent=1)

    def _refused(self, text: str) -> Outcome:
        self._reporter.note(f"lazyck: refused: {text}")
        return Outcome(PULLED, refused=(text,))


def offered(remote: Remote, entry: EntryName) -> int:
    """The size of the entry in the nearest tier that has one to believe; 0: there is none."""
    for place in remote.places:
        with contextlib.suppress(LazyckError):
            if record := remote.find(place, entry):
                return record.size
    return 0


@contextlib.contextmanager
def staging(cache: Path) -> Iterator[Path]:
    """A directory of this process's alone on the cache's file system. Named so that the runtime clears it away if this
    process is killed (docs/cache-format.md)."""
    check_directory(cache)
    check_directory(cache / ".staging")
    name = f"pull-{os.getpid()}@{socket.gethostname()}-{secrets.token_hex(3)}"
    path = cache / ".staging" / name
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def publish(path: Path, cache: Path, name: str) -> None:
    """Give a verified file of the same file system its name in the cache, by one rename; without the blob's lock, since
    whoever compiles it at this moment publishes the same entry."""
    target = cache / abi.CACHE_VERSION / name
    for directory in (target.parents[2], target.parents[1], target.parent):
        check_directory(directory)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)  # on disk before it has a name
    finally:
        os.close(fd)
    path.replace(target)


def make_private(above: Path, path: Path) -> None:
    """Make a directory and those between, for this user alone whatever the umask."""
    for directory in reversed([path, *path.parents]):
        if directory.is_relative_to(above):
            directory.mkdir(mode=0o700, exist_ok=True)


def check_directory(path: Path) -> None:
    """A directory of the cache, made if need be, that nobody else can write to; as the runtime will demand. Raises
    `RemoteError`."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode) or info.st_uid not in (0, os.geteuid()) or info.st_mode & 0o022:
        why = "it is a symbolic link, belongs to somebody else, or others can write to it"
        raise RemoteError(f"refusing the directory {path}: {why}", "the runtime would load nothing from it")
