"""Tell how far a prebuild is: the figures (pure), and the two ways in which they are shown."""

import sys
import time
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from tqdm import tqdm

from lazyck.prebuild.plan import JobFailure, Plan, PlanOutcome
from lazyck.quantities import show_kib, show_seconds
from lazyck.terminal import is_quiet, width_of
from lazyck.visible import visible

_PLAIN_INTERVAL = 5.0  # seconds between two lines in a log
_BAR_INTERVAL = 1.0  # seconds between two updates of a bar if nothing ends, for the figures of running jobs
_LEAST_BAR = 8  # columns
_EARLY = 3.0  # seconds after which what has been done tells something about the speed


@dataclass
class PlanProgress:
    """Jobs by their numbers in the plan: when the running ones began, in seconds of a monotonic
    clock, what those that ended took, and which failed."""

    plan: Plan
    parallel: int
    start: float
    running: dict[int, float] = field(default_factory=dict)
    took: dict[int, float] = field(default_factory=dict)
    failures: dict[int, JobFailure] = field(default_factory=dict)
    is_interrupted: bool = False

    @property
    def done(self) -> int:
        return len(self.took) + len(self.failures)

    def end(
        self, number: int, reporter: "ProgressReporter", failure: JobFailure | None = None, seconds: float = 0.0
    ) -> None:
        """Record and report that a job has ended. `seconds` counts if it was not seen running."""
        since = self.running.pop(number, None)
        if failure:
            self.failures[number] = failure
        else:
            self.took[number] = seconds if since is None else time.monotonic() - since
        reporter.ended(self, number, visible(failure.error) if failure else "")

    def outcome(self) -> PlanOutcome:
        failures = tuple(self.failures[i] for i in sorted(self.failures))
        return PlanOutcome(self.plan, len(self.took), failures, time.monotonic() - self.start, self.is_interrupted)


def time_left(state: PlanProgress, now: float) -> float | None:
    """Return the seconds until the end, by what the jobs took before and how fast they run this
    time; None if nothing is known yet.

    The guess for a job without a record is the mean of those with a record and of those that have
    ended.
    """
    known = [j.seconds for j in state.plan.jobs if j.seconds is not None] + list(state.took.values())
    if not known:
        return None
    mean = sum(known) / len(known)
    work = [mean if j.seconds is None else j.seconds for j in state.plan.jobs]
    ended = {*state.took, *state.failures}
    done = sum(work[i] for i in ended)
    done += sum(min(work[i], now - since) for i, since in state.running.items())
    left = max(0.0, sum(work) - done)
    # The one that runs longest decides if more jobs could run than are left.
    longest = max(
        (work[i] - (now - state.running.get(i, now)) for i in range(len(work)) if i not in ended), default=0.0
    )
    speed = float(state.parallel)
    if now - state.start > _EARLY and done > 0:
        speed = min(done / (now - state.start), speed)
    return max(left / max(speed, 1e-6), longest, 0.0)


def describe(state: PlanProgress, now: float, used_kib: int, room: int | None = None) -> str:
    """Return the status as `3 failed, 4 m 20 s left, 12 running, 0.8/s, 2.1 GB; fwd_d128 43 s`.
    With `room`, as many parts are shown as fit into these columns, first ones first. The last part
    names the job that has been running longest, if there is space for it."""
    parts = [f"{len(state.failures)} failed"] if state.failures else []
    left = time_left(state, now)
    parts += [f"{show_seconds(round(left))} left".replace(".0 s", " s")] if left is not None else []
    parts += [f"{len(state.running)} running"] if state.running else []
    spent = now - state.start
    if state.done and spent > 0:
        rate = state.done / spent
        parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min")
    parts += [show_kib(used_kib)] if used_kib else []
    if room is None:
        return ", ".join(parts)
    while parts and len(", ".join(parts)) > room:
        parts.pop()
    text = ", ".join(parts)
    if state.running:
        number, since = min(state.running.items(), key=lambda item: item[1])
        longest = f"; {state.plan.jobs[number].title} {now - since:.0f} s"
        text += longest if len(text) + len(longest) <= room else ""
    return text


class ProgressReporter(Protocol):
    """Receive what happens, and show it whenever asked to."""

    def ended(self, state: PlanProgress, number: int, error: str) -> None:
        """Report that a job has ended. `error` is an empty string if it succeeded."""

    def show(self, state: PlanProgress, now: float, used_kib: int) -> None:
        """Show the state at the time `now`."""

    def note(self, line: str) -> None:
        """Print a line."""

    def close(self) -> None:
        """End the display."""


class ProgressBar:
    """A bar at the foot of a terminal. Failures scroll past above it."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream = stream
        self._next = 0.0
        self._bar: tqdm = tqdm(
            total=total,
            file=stream,
            desc="lazyck",
            ncols=width_of(stream),
            leave=False,
            mininterval=0,
            bar_format="{desc}: {n_fmt}/{total_fmt} |{bar}|{postfix}",
        )

    def ended(self, state: PlanProgress, number: int, error: str) -> None:
        if error:
            self.note(f"lazyck: failed: {state.plan.jobs[number].title}: {error}")

    def show(self, state: PlanProgress, now: float, used_kib: int) -> None:
        if state.done == self._bar.n and now < self._next:
            return
        self._next = now + _BAR_INTERVAL
        self._bar.n = state.done
        self._bar.ncols = width = width_of(self._stream)
        counts = f"lazyck: {state.done}/{len(state.plan.jobs)} "
        room = width - len(counts) - _LEAST_BAR - len("||, ")
        self._bar.set_postfix_str(describe(state, now, used_kib, room), refresh=True)

    def note(self, line: str) -> None:
        self._bar.write(line, file=self._stream)

    def close(self) -> None:
        self._bar.close()


class ProgressLines:
    """Lines for logs: one about the blob that ended last, every few seconds at most, and one for
    each failure at once."""

    def __init__(self, stream: TextIO, total: int, *, shows: bool = True) -> None:
        self._stream = stream
        self._shows = shows
        self._next = 0.0
        self._waiting = ""  # a line about a blob, not printed yet

    def ended(self, state: PlanProgress, number: int, error: str) -> None:
        count, job = f"[{state.done}/{len(state.plan.jobs)}]", state.plan.jobs[number]
        if error:
            self.note(f"lazyck: {count} failed: {job.title}: {error}")
            return
        if self._shows:
            self._waiting = f"lazyck: {count} compiled {job.title} in {show_seconds(state.took[number])}"

    def show(self, state: PlanProgress, now: float, used_kib: int) -> None:
        if not self._waiting or now < self._next:
            return
        rest = describe(state, now, used_kib) if state.done < len(state.plan.jobs) else ""
        self.note(self._waiting + (f"; {rest}" if rest else ""))
        self._waiting = ""
        self._next = now + _PLAIN_INTERVAL

    def note(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        if self._waiting:
            self.note(self._waiting)


def reporter(total: int) -> ProgressReporter:
    if sys.stderr.isatty() and not is_quiet():
        return ProgressBar(sys.stderr, total)
    return ProgressLines(sys.stderr, total, shows=not is_quiet())
