"""Compile what a plan says, under ninja, by the runtime's own code: one `lazyck-rt compile` for
each entry.

ninja runs the given number of them at a time, and goes on after failures. Its output is for
`--verbose`. The progress is read from a journal that the edges write: lines "begin <number>" and
"end <number> <status>".
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from _lazyck import abi, proc
from _lazyck.errors import BuildError
from _lazyck.files import write_atomic
from _lazyck.prebuild.entries import rt_words
from _lazyck.prebuild.memory import tree_rss_kib
from _lazyck.prebuild.ninja_program import find_ninja
from _lazyck.prebuild.plan import Failure, Job, Outcome, Plan
from _lazyck.prebuild.preambles import find_preambles
from _lazyck.prebuild.progress import Reporter, State
from _lazyck.visible import visible

_FIRST_TICK, _TICK = 0.02, 0.2  # seconds between two looks, at first and later
_MEMORY_INTERVAL = 1.0  # seconds between two measurements of the memory, each of which reads all of /proc
_LONGEST_ERROR = 500
_REFUSED = 2  # how `lazyck-rt` ends if the compiler itself refused the code


@dataclass(frozen=True)
class BuildOptions:
    """How many compiles run at a time, whether to go on after a failure, whether to print
    commands, and whether to compile also what another cache than the first has."""

    parallel: int
    keeps_going: bool = True
    verbose: bool = False
    again: bool = False


def build(
    rt: Path, manifest_file: Path, plan: Plan, options: BuildOptions, env: Mapping[str, str], reporter: Reporter
) -> Outcome:
    """Do the plan. If it is interrupted (Ctrl-C, SIGTERM, SIGHUP), what has been compiled stays,
    and the outcome says so.

    Raises `ToolchainError` if there is no ninja, and `BuildError` if ninja itself fails.
    """
    # The user has asked for compiles, even if jobs in this environment may not compile at run time.
    own = {k: v for k, v in env.items() if k not in (abi.ENV_DISABLE_JIT, abi.ENV_JIT, "NINJA_STATUS")}
    own[abi.ENV_JOBS] = str(options.parallel)
    own.setdefault(abi.ENV_CACHE_MAXSIZE, "0")  # nothing may be evicted while the rest is being compiled
    argv = [str(find_ninja(own)), "-j", str(options.parallel), "-k", "0" if options.keeps_going else "1"]
    start = time.monotonic()
    is_interrupted = False
    groups = find_preambles(rt, manifest_file, plan.jobs, options.parallel, own)
    with tempfile.TemporaryDirectory(prefix="lazyck-prebuild-") as work:
        more = ["--again"] if options.again else []
        text = render_ninja(rt, manifest_file, plan.jobs, [plan.jobs[group[0]] for group in groups], more)
        write_atomic(Path(work) / "build.ninja", text.encode("utf-8", "surrogateescape"))
        argv += ["-C", work, *(["-v"] if options.verbose else [])]
        running = proc.Running(argv, env=own, on_line=reporter.note if options.verbose else None)
        watch = _Watch(Path(work), State(plan, options.parallel, start), reporter)
        try:
            with signals_interrupting():
                watch.follow(running)
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            status = running.stop()
            watch.look(is_interrupted)
            reporter.close()
    if status != 0 and not is_interrupted and not watch.failures:
        raise BuildError(f"ninja ended with status {status}:\n{running.tail}", "is the disk full, or ninja damaged?")
    failures = tuple(watch.failures[i] for i in sorted(watch.failures))
    return Outcome(plan, len(watch.state.took), failures, time.monotonic() - start, is_interrupted)


class _Watch:
    """Update the state from the journal, and tell the reporter."""

    def __init__(self, work: Path, state: State, reporter: Reporter) -> None:
        self.state = state
        self.failures: dict[int, Failure] = {}
        self._work = work
        self._reporter = reporter
        self._at = 0  # how far the journal has been read
        self._used_kib = 0

    def follow(self, running: proc.Running) -> None:
        """Follow the journal until ninja ends."""
        tick, next_memory = _FIRST_TICK, 0.0
        while running.poll() is None:
            self.look()
            now = time.monotonic()
            if now >= next_memory:
                self._used_kib = tree_rss_kib(running.pid)
                next_memory = now + _MEMORY_INTERVAL
            self._reporter.show(self.state, now, self._used_kib)
            time.sleep(tick)
            tick = min(_TICK, tick * 1.2)

    def look(self, is_interrupted: bool = False) -> None:
        """Process what the journal says so far. A job that an interruption killed has not
        failed."""
        now = time.monotonic()
        for verb, number, status in self._read():
            job = self.state.plan.jobs[number]
            if verb == "begin":
                self.state.running[number] = now
                continue
            since = self.state.running.pop(number, now)
            error = ""
            if status == 0:
                self.state.took[number] = now - since
            elif is_interrupted and status > 128:
                continue
            else:
                failure = failure_of(job, _text_of(self._work / f"{number}.out"), status)
                self.state.failed.add(number)
                self.failures[number] = failure
                error = visible(failure.error)
            self._reporter.ended(self.state, number, error)

    def _read(self) -> Iterator[tuple[str, int, int]]:
        try:
            with (self._work / "journal").open("rb") as f:
                f.seek(self._at)
                data = f.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode().splitlines():
            verb, number, *status = line.split()
            yield verb, int(number), int(status[0]) if status else 0


def _text_of(output: Path) -> str:
    try:
        return output.read_text(errors="surrogateescape")
    except OSError:
        return ""


def failure_of(job: Job, output: str, status: int) -> Failure:
    """Return the failure that `lazyck-rt compile` reports for a blob that it could not compile."""
    lines = output.strip().split("\n")
    log = next((line.strip()[5:] for line in lines if line.startswith("  log: ")), "")
    prefix = f"lazyck: cannot compile blob '{visible(job.entry.name)}' for {job.entry.shown_arch}: "
    first = lines[0].removeprefix(prefix) or f"lazyck-rt ended with status {status} and said nothing"
    log = log or (str(job.entry.log) if job.entry.log.exists() else "")
    return Failure(job, log, first[:_LONGEST_ERROR], status == _REFUSED)


@contextmanager
def signals_interrupting() -> Iterator[None]:
    """Let SIGTERM and SIGHUP (from a batch system or a closed terminal) interrupt like Ctrl-C, so
    that compilers end too."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    before = {n: signal.signal(n, interrupt) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def render_ninja(
    rt: Path, manifest_file: Path, jobs: Sequence[Job], preambles: Sequence[Job] = (), more: Sequence[str] = ()
) -> str:
    """Render a ninja file with one edge per job. The outputs are names that never exist, since the
    file does not describe what is cached.

    The edges for `preambles` come first, and nothing waits for them: what is compiled meanwhile
    does not use them.
    """

    def quoted(words: Sequence[str]) -> str:
        return " ".join("'" + w.replace("'", "'\\''") + "'" for w in words).replace("$", "$$")

    lines = [
        "rule compile",
        "  command = echo begin $number >> journal; $words > $number.out 2>&1; s=$$?; "
        "echo end $number $$s >> journal; exit $$s",
        "  description = $name",
        "",
    ]
    if preambles:
        lines += ["rule preamble", "  command = $words > $out.log 2>&1 || :", "  description = $out", ""]
    for i, job in enumerate(preambles):
        words = [*rt_words(rt, "preamble", manifest_file, job.entry.archs), "--", job.entry.name]
        lines += [f"build preamble{i}: preamble", f"  words = {quoted(words)}", ""]
    for i, job in enumerate(jobs):
        words = [*rt_words(rt, "compile", manifest_file, job.entry.archs), "--quiet", *more, "--", job.entry.name]
        lines += [f"build entry{i}: compile", f"  number = {i}", f"  words = {quoted(words)}"]
        lines += [f"  name = {job.title.replace('$', '$$')}", ""]
    return "\n".join(lines)
