"""Pushes entries of the local cache to a remote."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from _lazyck import abi
from _lazyck.cache import sweep
from _lazyck.cache.transfer import Item, Outcome, Reporter, Share, add_up, open_remote, run
from _lazyck.costs import read_last
from _lazyck.directory import RefusedError, opened_in
from _lazyck.errors import RemoteError
from _lazyck.layout import log_of, root_of
from _lazyck.prebuild.entries import tool
from _lazyck.remote import Remote
from _lazyck.remote.provenance import read_making


def push(share: Share, items: Sequence[Item], unverified: Path | None) -> Outcome:
    """Push the entries that the remote lacks. `unverified` is the cache of the items if they must
    be verified first. Raises `RemoteError`."""
    skipped: dict[str, None] = {}  # each message once
    remote = open_remote(share.env, skipped.setdefault)
    if not any(map(remote.may_push, remote.places)):
        raise RemoteError(
            f"{abi.ENV_REMOTE} names no tier that may be written",
            f"name one that is not read-only, and call it trusted or set {abi.ENV_SIGN_KEY}",
        )
    todo, looked = _look(share, remote, items)
    with contextlib.closing(Reporter(len(todo), skipped)) as reporter:
        verified = sweep.verify(tool(share.env), unverified, share.env) if unverified and todo else None

        def send(item: Item) -> Outcome:
            if problem := "" if verified is None else verified.get(str(item.path), "it was not verified"):
                reporter.note(f"refused: {item.path}: {problem}")
                return Outcome(refused=(f"{item.path}: {problem}",))
            return _send(remote, item)

        return add_up([looked, *run(todo, send, share.jobs, reporter)])


def _look(share: Share, remote: Remote, items: Sequence[Item]) -> tuple[list[Item], Outcome]:
    """Return the items that some tier lacks, and the outcome of the others."""
    todo: list[Item] = []

    def look(item: Item) -> Outcome:
        if not (remote.shared_place() and remote.lacking(item.entry)):
            is_down = any(p.why_down(for_writes=True) for p in remote.places if remote.may_push(p))
            return Outcome(left=1) if is_down else Outcome(there=1)
        if share.dry_run:
            return Outcome((item.entry.name,), _size_of(item.path))
        todo.append(item)
        return Outcome()

    looked = add_up(run(items, look, share.jobs))
    return sorted(todo, key=lambda i: i.entry.name), looked


def _size_of(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if it has vanished."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _send(remote: Remote, item: Item) -> Outcome:
    if remote.shared_place() is None:
        return Outcome(left=1)
    e, root = item.entry, root_of(item.path)
    took, making = None, None
    with contextlib.suppress(OSError):
        took = read_last(root, e.library, e.blob, e.archs)
    with contextlib.suppress(OSError, RefusedError), opened_in(root, log_of(item.path)) as log:
        making = read_making(log)
    try:
        # The open file is what is read and signed, even if the directories above the cache are
        # exchanged.
        with opened_in(root, item.path) as own:
            has_it = remote.push(e, Path(f"/proc/self/fd/{own.fileno()}"), *(took or (0.0, 0)), making)
    except RefusedError as error:
        return Outcome(refused=(error.message,))
    except OSError as error:
        return Outcome(failed=(f"{item.path}: {error.strerror}",))
    if len(has_it) < sum(map(remote.may_push, remote.places)):
        return Outcome(failed=(e.name,))
    return Outcome((e.name,), _size_of(item.path))
