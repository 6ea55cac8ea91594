"""Pushes entries of the local cache to a remote."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from _lazyck import abi
from _lazyck.cache import sweep
from _lazyck.cache.share import Messages, Share, open_remote, size_of
from _lazyck.cache.transfer import Item, Outcome, Quiet, add_up, run
from _lazyck.costs import read_last
from _lazyck.directory import RefusedError, opened_in
from _lazyck.errors import RemoteError
from _lazyck.layout import log_of, root_of
from _lazyck.remote import Listener, Remote
from _lazyck.remote.provenance import Making, read_making

PUSHED = "pushed"


def push(share: Share, items: Sequence[Item], unverified: Path | None) -> Outcome:
    """Push the entries that the remote lacks. `unverified` is the cache of the items if they must
    be verified first. Raises `RemoteError`."""
    skipped = Messages()
    remote = open_remote(share.env, Listener(skipped=skipped.add))
    if not any(map(remote.may_push, remote.places)):
        raise RemoteError(
            f"{abi.ENV_REMOTE} names no tier that may be written",
            f"name one that is not read-only, and call it trusted or set {abi.ENV_SIGN_KEY}",
        )
    todo, looked = _look(share, remote, items)
    reporter = share.reporter(len(todo))
    try:
        found: dict[str, str] | None = None
        if unverified and todo:
            found = dict(sweep.verify(share.rt(), unverified, share.env).entries)

        def send(item: Item) -> Outcome:
            if problem := "" if found is None else found.get(str(item.path), "it was not verified"):
                reporter.note(f"lazyck: refused: {item.path}: {problem}")
                return Outcome(PUSHED, refused=(f"{item.path}: {problem}",))
            return _send(remote, item)

        return add_up(PUSHED, [looked, *run(todo, send, share.jobs, reporter)])
    finally:
        reporter.close()
        for text in skipped.texts:
            reporter.note(f"lazyck: {text}")


def _look(share: Share, remote: Remote, items: Sequence[Item]) -> tuple[list[Item], Outcome]:
    """Return the items that some tier lacks, and the outcome of the others."""
    todo: list[Item] = []

    def look(item: Item) -> Outcome:
        if not (remote.shared_place() and remote.lacking(item.entry)):
            is_down = any(p.why_down(for_writes=True) for p in remote.places if remote.may_push(p))
            return Outcome(PUSHED, left=1) if is_down else Outcome(PUSHED, there=1)
        if share.dry_run:
            return Outcome(PUSHED, done=(item.entry.name,), bytes=size_of(item.path))
        todo.append(item)
        return Outcome(PUSHED)

    looked = add_up(PUSHED, run(items, look, share.jobs, Quiet()))
    return sorted(todo, key=lambda i: i.entry.name), looked


def _making(path: Path) -> Making | None:
    """Return what the log beside an entry says of its compile, or None if it says nothing."""
    with contextlib.suppress(OSError, RefusedError), opened_in(root_of(path), log_of(path)) as log:
        return read_making(log)
    return None


def _send(remote: Remote, item: Item) -> Outcome:
    if remote.shared_place() is None:
        return Outcome(PUSHED, left=1)
    e = item.entry
    took = None
    with contextlib.suppress(OSError):
        took = read_last(root_of(item.path), *e.place.cost_key)
    try:
        # The open file is what is read and signed, even if the directories above the cache are
        # exchanged.
        with opened_in(root_of(item.path), item.path) as own:
            has_it = remote.push(e, Path(f"/proc/self/fd/{own.fileno()}"), *(took or (0.0, 0)), _making(item.path))
    except RefusedError as error:
        return Outcome(PUSHED, refused=(error.message,))
    except OSError as error:
        return Outcome(PUSHED, failed=(f"{item.path}: {error.strerror}",))
    if len(has_it) < sum(map(remote.may_push, remote.places)):
        return Outcome(PUSHED, failed=(e.name,))
    return Outcome(PUSHED, (e.name,), size_of(item.path))
