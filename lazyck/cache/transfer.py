"""Shared parts of pushing and pulling entries: which entries, which remote, several transfers
at a time, progress and a summary."""

import contextlib
import fnmatch
import math
import queue
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lazyck import abi
from lazyck.cache.entries import read_entries
from lazyck.errors import FormatError, LazyckError, UsageError
from lazyck.formats.manifest import Manifest
from lazyck.history.profile import Profile
from lazyck.prebuild import blob_names
from lazyck.prebuild.blob_entries import BlobEntry
from lazyck.quantities import counted, show_seconds, show_size
from lazyck.remote import EntryName, Listener, Remote
from lazyck.terminal import is_quiet
from lazyck.visible import visible

_PLAIN_INTERVAL = 5.0  # seconds between two lines in a log


@dataclass(frozen=True)
class Share:
    env: Mapping[str, str]
    jobs: int
    dry_run: bool


@dataclass(frozen=True)
class TransferItem:
    entry: EntryName
    path: Path


@dataclass(frozen=True)
class TransferOutcome:
    """The result of transfers. `done` names the entries that were transferred.

    `there` counts entries that existed already, `absent` those that are in no remote, and `left`
    those that were given up since no remote was available any more. `refused` and `failed` say why
    other entries were not transferred.
    """

    done: tuple[str, ...] = ()
    bytes: int = 0
    there: int = 0
    absent: int = 0
    left: int = 0
    refused: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not (self.refused or self.failed or self.left)


def select_blobs(manifest: Manifest, patterns: Sequence[str], profiles: Sequence[Profile]) -> blob_names.Selection:
    """Return the blobs that patterns and profiles name, or all if there are neither. Raises
    `LazyckError` for a name or pattern that fits none."""
    # Lines of a profile that belong to other libraries do not count here.
    given = [u.blob for p in profiles for u in p.uses if u.library in ("", manifest.library)]
    return blob_names.select(manifest, [*given, *patterns], not patterns and not profiles)


def items_of(found: Sequence[BlobEntry]) -> list[TransferItem]:
    return [TransferItem(EntryName(e.key, e.place), e.path) for e in found]


def local_items(cache: Path, patterns: Sequence[str], profiles: Sequence[Profile]) -> list[TransferItem]:
    """Return the entries of the cache, of any library, whose blobs fit. Raises `LazyckError` for a
    pattern that fits none."""
    wanted = {(library, u.blob) for p in profiles for u in p.uses for library in (u.library, abi.PROGRAMS)}
    unused = set(patterns)
    items = []
    for e in read_entries(cache):
        fits = [p for p in patterns if fnmatch.fnmatchcase(e.at.blob, p)]
        unused -= set(fits)
        if fits or {(e.at.library, e.at.blob), ("", e.at.blob)} & wanted or not (patterns or profiles):
            with contextlib.suppress(FormatError, OSError):  # a damaged entry: `cache verify` reports it
                items.append(TransferItem(EntryName.of_file(cache, e.path), e.path))
    if unused:
        problem = f"{cache} has no entry for a blob {sorted(unused)[0]!r}"
        raise LazyckError(problem, "`lazyck cache list` prints the names")
    return items


def open_remote(env: Mapping[str, str], skipped: Callable[[str], None]) -> Remote:
    """Open the remote of the environment, which reports to `skipped` why it skips a tier. Raises
    `LazyckError` if there is none, or if it needs something that is not installed."""
    # First calls remember which tiers were down. A user who asks explicitly wants a new try.
    remote = Remote.from_environment(env, None, Listener(skipped=skipped), remembers=False)
    if remote is None:
        raise UsageError("no remote cache is set", f"set {abi.ENV_REMOTE} (`lazyck help remote`)")
    for client in remote.clients:
        client.open()
    return remote


def run(
    items: Sequence[TransferItem],
    work: Callable[[TransferItem], TransferOutcome],
    jobs: int,
    reporter: "TransferReporter | None" = None,
) -> list[TransferOutcome]:
    """Do the work on each item, `jobs` at a time. After an interruption, work that has begun is
    finished. Work that is fast needs no reporter."""
    outcomes: list[TransferOutcome] = []
    ended: queue.SimpleQueue[Future[TransferOutcome]] = queue.SimpleQueue()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for item in items:
                pool.submit(work, item).add_done_callback(ended.put)
            while len(outcomes) < len(items):
                with contextlib.suppress(queue.Empty):
                    outcomes.append(ended.get(timeout=0.5).result())
                    if reporter:
                        reporter.ended(outcomes[-1])
                if reporter:
                    reporter.show()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return outcomes


def add_up(outcomes: Iterable[TransferOutcome]) -> TransferOutcome:
    columns = zip(*(vars(o).values() for o in (TransferOutcome(), *outcomes)), strict=True)
    sums: list[Any] = [tuple(chain(*c)) if isinstance(c[0], tuple) else sum(c) for c in columns]
    return TransferOutcome(*sums)


class TransferReporter:
    """Shows the progress of transfers on stderr: a bar at the foot of a terminal, or lines for a
    log, one every few seconds at most. At the end it shows the messages `skipped`."""

    def __init__(self, total: int, skipped: Iterable[str]) -> None:
        self._total = total
        self._skipped = skipped
        self._count = self._bytes = 0
        self._next = math.inf if is_quiet() else time.monotonic() + _PLAIN_INTERVAL
        self._bar: tqdm | None = None
        if sys.stderr.isatty() and not is_quiet():
            form = "{desc}: {n_fmt}/{total_fmt} |{bar}|{postfix}"
            self._bar = tqdm(total=total, file=sys.stderr, desc="lazyck", leave=False, bar_format=form)

    def ended(self, outcome: TransferOutcome) -> None:
        self._count += 1
        self._bytes += outcome.bytes
        if self._bar is not None:
            self._bar.set_postfix_str(show_size(self._bytes), refresh=False)
            self._bar.update(1)

    def show(self) -> None:
        """Write a line, if it is time and there is no bar."""
        if self._bar is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN_INTERVAL
            self.note(f"[{self._count}/{self._total}] {show_size(self._bytes)}")

    def note(self, line: str) -> None:
        """Show a message, above the bar if there is one."""
        tqdm.write(f"lazyck: {line}", file=sys.stderr)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        for text in self._skipped:
            self.note(text)


def render(verb: str, outcome: TransferOutcome, seconds: float, dry_run: bool) -> str:
    """Return the outcome for people, in a line. Refused and failed entries were reported before."""
    parts = [f"{counted(len(outcome.done), 'entry', 'entries')} ({show_size(outcome.bytes)})"]
    parts[0] += f" would be {verb}" if dry_run else f" {verb}"
    for count, what in (
        (outcome.there, "already there"),
        (outcome.absent, "in no remote"),
        (len(outcome.refused), "refused"),
        (len(outcome.failed), "failed"),
        (outcome.left, "left"),
    ):
        parts += [f"{count} {what}"] if count else []
    text = f"{', '.join(parts)}; {show_seconds(seconds)}"
    return "\n".join([*(visible(name) for name in outcome.done), text]) if dry_run else text


def to_json(verb: str, outcome: TransferOutcome) -> dict[str, object]:
    raw = asdict(outcome)
    return {verb: raw.pop("done"), **raw}
