"""Carry out a plan: assign its jobs, longest first, collect their results, and show progress.

Each executor is a `PlanRun`: `LocalRun` compiles on this machine, by one `lazyck-rt compile` for
each entry; `farm/` on a cluster of dask; `reapi/` by a compile service.
"""

import os
import queue
import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lazyck import abi, proc
from lazyck.errors import LazyckError
from lazyck.formats.manifest import Manifest
from lazyck.prebuild.blob_entries import rt_words
from lazyck.prebuild.plan import Job, JobFailure, Plan, PlanOutcome
from lazyck.prebuild.preambles import find_preambles
from lazyck.prebuild.progress import PlanProgress, ProgressReporter
from lazyck.prebuild.reapi.endpoint import is_endpoint
from lazyck.visible import visible

_TICK = 0.2  # seconds to wait for an event
_MEMORY_INTERVAL = 1.0  # seconds between two measurements of the memory, each of which reads all of /proc
_LONGEST_ERROR = 500
_REFUSED = 2  # how `lazyck-rt` ends if the compiler itself refused the code


@dataclass(frozen=True)
class PrebuildRequest:
    """What is to be done: a plan for a library, in an environment. The reporter is told of it."""

    manifest_file: Path
    manifest: Manifest
    plan: Plan
    env: Mapping[str, str]
    reporter: ProgressReporter
    keeps_going: bool = True


class StoppedError(Exception):
    """The run has ended."""


class PlanRun:
    """A plan that is being done, `parallel` jobs at a time. A subclass makes the entries, on
    threads of the pool; all else happens on the main thread."""

    def __init__(self, request: PrebuildRequest, parallel: int, threads: int = 0) -> None:
        self.request, self.plan, self.env, self.reporter = request, request.plan, request.env, request.reporter
        self.state = PlanProgress(self.plan, parallel, time.monotonic())
        self.pool = ThreadPoolExecutor(threads or parallel)
        self.todo = deque(range(len(self.plan.jobs)))
        self.busy: set[int] = set()  # jobs that were given out and have not ended
        self.used_kib = 0
        self.last_event = 0.0
        self._events: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def build(self) -> PlanOutcome:
        """Work until the plan is done or interrupted (Ctrl-C, SIGTERM, SIGHUP). What has been made
        until then stays, and the outcome says so. Raises `LazyckError`."""
        try:
            with _interruptible(self.state):
                self.prepare()
                self.last_event = time.monotonic()
                while self.is_open():
                    self.look()
                    while self.todo and self.may_begin and self.has_capacity():
                        number = self.todo.popleft()
                        self.busy.add(number)
                        self.give(number)
                    self.take_in(_TICK)
                    self.reporter.show(self.state, time.monotonic(), self.used_kib)
        finally:
            self.end()
            self.pool.shutdown(cancel_futures=True)
            self.reporter.close()
        return self.state.outcome()

    @property
    def may_begin(self) -> bool:
        return self.request.keeps_going or not self.state.failures

    def is_open(self) -> bool:
        return bool(self.busy or (self.todo and self.may_begin))

    def post(self, event: Callable[..., object], *words: Any) -> None:
        self._events.put(partial(event, *words))

    def take_in(self, seconds: float) -> None:
        """Process what was posted. If there is nothing, wait for it for so many seconds."""
        with suppress(queue.Empty):
            while True:
                self._events.get(timeout=seconds)()
                self.last_event, seconds = time.monotonic(), 0.0

    def ended(self, number: int, failure: JobFailure | None = None, seconds: float = 0.0) -> None:
        self.busy.discard(number)
        self.state.end(number, self.reporter, failure, seconds)

    # Subclasses override:

    def prepare(self) -> None:
        """Do what comes before the first job."""

    def look(self) -> None:
        """Do what is to be done now and then."""

    def end(self) -> None:
        """End what is under way."""

    def has_capacity(self) -> bool:
        return len(self.busy) < self.state.parallel

    def give(self, number: int) -> None:
        self.pool.submit(self._make, number)

    def make(self, number: int, job: Job) -> JobFailure | None:
        """Make an entry, on a thread of the pool. Return its failure, if any. Raises
        `StoppedError`."""
        raise NotImplementedError

    def _make(self, number: int) -> None:
        job = self.plan.jobs[number]
        try:
            failure = self.make(number, job)
        except StoppedError:
            return
        except Exception as e:
            failure = JobFailure(job, "", e.message if isinstance(e, LazyckError) else f"{type(e).__name__}: {e}")
        self.post(self.ended, number, failure)


class LocalRun(PlanRun):
    """A run on this machine. With `verbose`, commands are printed; with `again`, what another cache
    than the first has is compiled, too."""

    def __init__(
        self, rt: Path, request: PrebuildRequest, parallel: int, *, verbose: bool = False, again: bool = False
    ) -> None:
        super().__init__(request, parallel)
        # The user has asked for compiles, even if jobs here may not compile at run time.
        self.env = {k: v for k, v in self.env.items() if k != abi.ENV_JIT} | {abi.ENV_JOBS: str(parallel)}
        self.env.setdefault(abi.ENV_CACHE_MAXSIZE, "0")  # nothing may be evicted while the rest is being compiled
        self._rt, self._verbose = rt, verbose
        self._options = (abi.OPTION_QUIET, abi.OPTION_AGAIN) if again else (abi.OPTION_QUIET,)
        self._commands = proc.Commands()
        self._with_preambles: set[int] = set()  # the first jobs of groups that share a preamble
        self._next_memory = 0.0

    def prepare(self) -> None:
        groups = find_preambles(self._rt, self.request.manifest_file, self.plan.jobs, self.state.parallel, self.env)
        self._with_preambles = {group[0] for group in groups}

    def look(self) -> None:
        if time.monotonic() >= self._next_memory:
            self.used_kib = _descendants_rss_kib()
            self._next_memory = time.monotonic() + _MEMORY_INTERVAL

    def end(self) -> None:
        self._commands.stop()
        self.pool.shutdown(cancel_futures=True)
        self.take_in(0.0)

    def give(self, number: int) -> None:
        self.state.running[number] = time.monotonic()
        super().give(number)

    def make(self, number: int, job: Job) -> JobFailure | None:
        if number in self._with_preambles:  # if it fails, the compiles do without it
            self._run(abi.RT_PREAMBLE, job)
        done = self._run(abi.RT_COMPILE, job, *self._options)
        status = 128 - done.status if done.status < 0 else done.status
        return failure_of(job, done.stdout, status) if status else None

    def _run(self, verb: str, job: Job, *options: str) -> proc.Result:
        words = rt_words(self._rt, verb, self.request.manifest_file, job.entry.archs, *options, "--", job.entry.name)
        if self._verbose:
            self.post(self.reporter.note, " ".join("'" + w.replace("'", "'\\''") + "'" for w in words))
        done = self._commands.run(words, env=self.env)
        if done is None:
            raise StoppedError
        return done


def build_on(executor: str, request: PrebuildRequest, *, named_by: str, jobs: int | None) -> PlanOutcome:
    """Do the plan by the executor of this URL, which the user gave as the value of `named_by`.

    `jobs` is how many compiles a worker of a cluster runs at a time (None: its threads), or how
    many actions of a service may be under way (None: 64). Raises `LazyckError`.
    """
    # Each needs optional libraries, so it is imported when it is used.
    if is_endpoint(executor):
        from lazyck.prebuild.reapi.service_run import build_on_service

        return build_on_service(executor, request, named_by=named_by, jobs=jobs)
    from lazyck.prebuild.farm.farm import build_on_farm

    return build_on_farm(executor, request, jobs=jobs)


def failure_of(job: Job, output: str, status: int) -> JobFailure:
    """Return the failure that `lazyck-rt compile` reports for a blob that it could not compile."""
    lines = output.strip().split("\n")
    log = next((line.strip()[5:] for line in lines if line.startswith("  log: ")), "")
    prefix = f"lazyck: cannot compile blob '{visible(job.entry.name)}' for {job.entry.shown_arch}: "
    first = lines[0].removeprefix(prefix) or f"lazyck-rt ended with status {status} and said nothing"
    log = log or (str(job.entry.log) if job.entry.log.exists() else "")
    return JobFailure(job, log, first[:_LONGEST_ERROR], status == _REFUSED)


@contextmanager
def _interruptible(state: PlanProgress) -> Iterator[None]:
    """Note in the state that Ctrl-C interrupted the block, or SIGTERM or SIGHUP (from a batch
    system or a closed terminal), so that compilers end too."""
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    before = {n: signal.signal(n, signal.default_int_handler) for n in numbers}
    try:
        yield
    except KeyboardInterrupt:
        state.is_interrupted = True
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _descendants_rss_kib() -> int:
    children: defaultdict[int, list[int]] = defaultdict(list)
    pages: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            # The name, in parentheses, may contain anything.
            words = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()
            parent, pages[int(name)] = int(words[1]), int(words[21])
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
        children[parent].append(int(name))
    below = list(children[os.getpid()])
    for number in below:  # which grows
        below += children[number]
    return sum(pages[n] for n in below) * (os.sysconf("SC_PAGE_SIZE") // 1024)
