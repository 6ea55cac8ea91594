"""Transfers many entries between the local cache and a remote: several at a time, with a progress
bar and a summary."""

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from tqdm import tqdm

from _lazyck.quantities import counted, show_seconds, show_size
from _lazyck.remote import EntryName
from _lazyck.terminal import is_quiet
from _lazyck.visible import visible

_PLAIN_INTERVAL = 5.0  # seconds between two lines in a log


@dataclass(frozen=True)
class Item:
    """An entry, and its path in the local cache."""

    entry: EntryName
    path: Path


@dataclass(frozen=True)
class Outcome:
    """The result of transfers. `done` names the entries that were transferred.

    `there` counts entries that existed already, `absent` those that are in no remote, and `left`
    those that were given up since no remote was available any more. `refused` and `failed` say why
    other entries were not transferred.
    """

    verb: str
    done: tuple[str, ...] = ()
    bytes: int = 0
    there: int = 0
    absent: int = 0
    left: int = 0
    refused: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether everything that could be transferred was."""
        return not (self.refused or self.failed or self.left)


def run(items: Sequence[Item], work: Callable[[Item], Outcome], jobs: int, reporter: "Reporter") -> list[Outcome]:
    """Do the work on each item, `jobs` at a time. After an interruption, work that has begun is
    finished."""
    outcomes: list[Outcome] = []
    ended: queue.SimpleQueue[Future[Outcome]] = queue.SimpleQueue()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for item in items:
                pool.submit(work, item).add_done_callback(ended.put)
            while len(outcomes) < len(items):
                with contextlib.suppress(queue.Empty):
                    outcomes.append(ended.get(timeout=0.5).result())
                    reporter.ended(outcomes[-1])
                reporter.show()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return outcomes


def add_up(verb: str, outcomes: Sequence[Outcome]) -> Outcome:
    """Return the sum of several outcomes."""
    return Outcome(
        verb,
        tuple(name for o in outcomes for name in o.done),
        sum(o.bytes for o in outcomes),
        sum(o.there for o in outcomes),
        sum(o.absent for o in outcomes),
        sum(o.left for o in outcomes),
        tuple(text for o in outcomes for text in o.refused),
        tuple(text for o in outcomes for text in o.failed),
    )


class Reporter(Protocol):
    """Shows the progress of transfers."""

    def ended(self, outcome: Outcome) -> None:
        """Count one more transfer that has ended."""

    def show(self) -> None:
        """Show the progress, if it is time."""

    def note(self, line: str) -> None:
        """Show a message."""

    def close(self) -> None:
        """End the display."""


class Bar:
    """A progress bar at the foot of a terminal."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream = stream
        self._bytes = 0
        form = "{desc}: {n_fmt}/{total_fmt} |{bar}|{postfix}"
        self._bar: tqdm = tqdm(total=total, file=stream, desc="lazyck", leave=False, bar_format=form)

    def ended(self, outcome: Outcome) -> None:
        self._bytes += outcome.bytes
        self._bar.set_postfix_str(show_size(self._bytes), refresh=False)
        self._bar.update(1)

    def show(self) -> None:
        pass

    def note(self, line: str) -> None:
        self._bar.write(line, file=self._stream)

    def close(self) -> None:
        self._bar.close()


class Lines:
    """Lines for a log, one every few seconds at most."""

    def __init__(self, stream: TextIO, total: int, *, shows: bool = True) -> None:
        self._stream = stream
        self._shows = shows
        self._total = total
        self._count = self._bytes = 0
        self._lock = threading.Lock()
        self._next = time.monotonic() + _PLAIN_INTERVAL

    def ended(self, outcome: Outcome) -> None:
        self._count += 1
        self._bytes += outcome.bytes

    def show(self) -> None:
        if self._shows and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN_INTERVAL
            self.note(f"lazyck: [{self._count}/{self._total}] {show_size(self._bytes)}")

    def note(self, line: str) -> None:
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()

    def close(self) -> None:
        pass


class Quiet:
    """No output, for work that is fast."""

    def ended(self, outcome: Outcome) -> None:
        pass

    def show(self) -> None:
        pass

    def note(self, line: str) -> None:
        pass

    def close(self) -> None:
        pass


def reporter(total: int) -> Reporter:
    """Return the reporter that suits stderr."""
    if sys.stderr.isatty() and not is_quiet():
        return Bar(sys.stderr, total)
    return Lines(sys.stderr, total, shows=not is_quiet())


def render(outcome: Outcome, seconds: float, dry_run: bool) -> str:
    """Return the outcome for people, in a line. Refused and failed entries have been reported
    before."""
    verb = f"would be {outcome.verb}" if dry_run else outcome.verb
    parts = [f"{counted(len(outcome.done), 'entry', 'entries')} ({show_size(outcome.bytes)}) {verb}"]
    parts += [f"{outcome.there} already there"] if outcome.there else []
    parts += [f"{outcome.absent} in no remote"] if outcome.absent else []
    parts += [f"{len(outcome.refused)} refused"] if outcome.refused else []
    parts += [f"{len(outcome.failed)} failed"] if outcome.failed else []
    parts += [f"{outcome.left} left"] if outcome.left else []
    text = f"{', '.join(parts)}; {show_seconds(seconds)}"
    return "\n".join([*(visible(name) for name in outcome.done), text]) if dry_run else text


def to_json(outcome: Outcome) -> dict[str, object]:
    """Return the outcome for programs."""
    return {
        outcome.verb: list(outcome.done), "bytes": outcome.bytes, "there": outcome.there, "absent": outcome.absent,
        "left": outcome.left, "refused": list(outcome.refused), "failed": list(outcome.failed),
    }  # fmt: skip
