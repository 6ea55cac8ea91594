"""Do a plan on a farm, longest jobs first: each free place of a worker gets the next job. Results
travel by the shared cache.

Which worker gets which job is decided here and not by dask, which does not know how long a compile
takes. A worker gets as many jobs as it has places. When it is gone, its jobs, and no others, are
given to other workers.
"""

from __future__ import annotations

import queue
import secrets
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _lazyck import abi
from _lazyck.errors import BuildError, LazyckError, UsageError
from _lazyck.manifest import Manifest, encode
from _lazyck.prebuild.entries import tool
from _lazyck.prebuild.farm.cluster import connected
from _lazyck.prebuild.farm.crew import Crew, Member, read_answer
from _lazyck.prebuild.farm.guard import Guard, describe
from _lazyck.prebuild.farm.inbox import fetch, keep_cost, keep_log
from _lazyck.prebuild.farm.orders import Made, Order, Visit, settings_for_workers
from _lazyck.prebuild.farm.parcel import pack, parcel_files
from _lazyck.prebuild.farm.wire import encode_message
from _lazyck.prebuild.farm.worker import answer_order, stop
from _lazyck.prebuild.local import failure_of, signals_interrupting
from _lazyck.prebuild.plan import Failure, Job, Outcome, Plan
from _lazyck.prebuild.preambles import FEWEST, find_preambles
from _lazyck.prebuild.progress import Reporter, State
from _lazyck.remote import Listener, Remote
from _lazyck.visible import visible

_TRIES = 3
_TICK = 0.2  # seconds to wait for an event
_LOOK = 1.0  # seconds between two looks at which workers exist
_PATIENCE = 600.0  # seconds without any worker
_GRACE = 5.0  # seconds without any worker, if some were refused
_END_SECONDS = 10.0
_WON_BACK_BY = 3  # blobs that a worker's preamble must serve to win back the time to make it
_FETCHES = 4  # entries that are fetched at the same time


@dataclass(frozen=True)
class FarmOptions:
    """Where the cluster is, how many compiles a worker runs at a time (None: its threads), and
    whether to go on after a failure."""

    executor: str
    jobs: int | None
    keeps_going: bool = True
    patience: float = _PATIENCE


@dataclass
class _Given:
    """A job that a worker has."""

    number: int
    member: Member
    future: Any


@dataclass
class _Run:
    """What is still to do, and which worker has which job."""

    todo: deque[int]
    given: dict[str, _Given] = field(default_factory=dict)
    coming: set[int] = field(default_factory=set)  # made, and being fetched
    tries: dict[int, int] = field(default_factory=dict)


def remote_of(env: Mapping[str, str], reporter: Reporter) -> Remote:
    """Return the shared cache. Raises `UsageError` if there is none."""
    said: set[str] = set()

    def say(line: str) -> None:
        if line not in said:
            said.add(line)
            reporter.note(f"lazyck: {visible(line)}")

    remote = Remote.from_environment(env, listener=Listener(say, say))
    if remote is None:
        raise UsageError(
            f"{abi.ENV_REMOTE} is not set, and the workers' entries come back through that cache",
            f"set {abi.ENV_REMOTE}=URL to one that they can write and this machine can read (`lazyck help remote`)",
        )
    return remote


class Farm:
    """A run of a plan on a cluster."""

    def __init__(
        self, manifest: Manifest, plan: Plan, options: FarmOptions, env: Mapping[str, str], remote: Remote,
        guard: Guard, reporter: Reporter,
    ) -> None:  # fmt: skip
        self._manifest, self._plan, self._options = manifest, plan, options
        self._remote, self._guard, self._reporter = remote, guard, reporter
        self._settings, withheld = settings_for_workers(env)
        if withheld:
            reporter.note(f"lazyck: {visible(withheld)}")
        self._name = secrets.token_hex(8)
        self._events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._failures: dict[int, Failure] = {}
        self._preambles: dict[int, str] = {}  # job → its group
        self._left: dict[str, int] = {}  # group → how many of its jobs have not been given to a worker yet
        self._run = _Run(deque(range(len(plan.jobs))))
        self._recipes = {b.name: b.recipe for b in manifest.blobs}
        self.state = State(plan, 0, time.monotonic())

    def build(self, client: Any, manifest_file: Path, env: Mapping[str, str]) -> Outcome:
        """Work until the plan is done or interrupted. Raises `BuildError` and `LazyckError`."""
        start = time.monotonic()
        used = frozenset(self._recipes[j.entry.name] for j in self._plan.jobs)
        asked = Visit(self._name, encode(self._manifest), self._settings)
        crew = Crew(
            client, asked, self._manifest, used, self._options.jobs, lambda s: self._reporter.note(f"lazyck: {s}")
        )
        is_interrupted = False
        pool = ThreadPoolExecutor(_FETCHES)
        try:
            with signals_interrupting():
                self._fetch_what_is_there(pool)
                if self._is_open():
                    self._share_preambles(manifest_file, env, len(client.nthreads()))
                    digest = self._send_bundle(manifest_file, env)
                    self._work(client, crew, digest, pool)
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            pool.shutdown(cancel_futures=True)
            self._end(client)
            self._reporter.close()
        self._guard.check()
        failures = tuple(self._failures[i] for i in sorted(self._failures))
        return Outcome(self._plan, len(self.state.took), failures, time.monotonic() - start, is_interrupted)

    # -- before ------------------------------------------------------------------------------------

    def _fetch_what_is_there(self, pool: ThreadPoolExecutor) -> None:
        """Fetch what an earlier run, or anybody else, has left in the remote cache."""
        have = list(pool.map(lambda job: fetch(self._remote, job.entry), self._plan.jobs))
        for number, is_here in enumerate(have):
            if is_here:
                self._run.todo.remove(number)
                self._took(number, 0.0)
        if any(have):
            self._reporter.note(f"lazyck: {sum(have)} of {len(have)} entries were in the remote cache")

    def _share_preambles(self, manifest_file: Path, env: Mapping[str, str], workers: int) -> None:
        """Group the jobs that can share a preamble. Each worker makes its own, so larger groups are
        needed."""
        numbers = sorted(self._run.todo)
        if len(numbers) < FEWEST:  # this machine may have no compiler to build `lazyck-rt` with
            return
        jobs = [self._plan.jobs[n] for n in numbers]
        for i, group in enumerate(find_preambles(tool(env), manifest_file, jobs, max(1, workers), env)):
            self._preambles |= {numbers[n]: str(i) for n in group}
            self._left[str(i)] = len(group)

    def _preamble_for(self, number: int, member: Member, members: int) -> str:
        """Return the job's group if the worker has its preamble, or if enough jobs are left for
        each worker to make one; else an empty string."""
        group = self._preambles.pop(number, "")
        if not group:
            return ""
        self._left[group] -= 1
        if group in member.preambles or self._left[group] >= _WON_BACK_BY * members:
            member.preambles.add(group)
            return group
        return ""

    def _send_bundle(self, manifest_file: Path, env: Mapping[str, str]) -> str:
        with tempfile.TemporaryDirectory(prefix="lazyck-farm-") as work:
            parcel = Path(work) / "bundle"
            pack(parcel, parcel_files(manifest_file, self._manifest, env), self._manifest)
            return self._remote.put_contents(parcel)

    # -- meanwhile ---------------------------------------------------------------------------------

    def _is_open(self) -> bool:
        run = self._run
        if self._failures and not self._options.keeps_going:
            return bool(run.given or run.coming)
        return bool(run.todo or run.given or run.coming)

    def _work(self, client: Any, crew: Crew, digest: str, pool: ThreadPoolExecutor) -> None:
        next_look, idle_since = 0.0, time.monotonic()
        while self._is_open():
            now = time.monotonic()
            if now >= next_look:
                self._let_go(crew.look())
                next_look = time.monotonic() + _LOOK
            crew.hear()
            self.state.parallel = crew.places
            self._give(client, crew, digest)
            if crew.members or crew.asking or self._run.coming:
                idle_since = time.monotonic()
            self._check_patience(crew, time.monotonic() - idle_since)
            self._take_in(pool)
            self._guard.check()
            self._reporter.show(self.state, time.monotonic(), 0)

    def _check_patience(self, crew: Crew, idle: float) -> None:
        # If some workers are refused, others may still be on their way.
        if idle < (min(_GRACE, self._options.patience) if crew.refused else self._options.patience):
            return
        told = [f"  {visible(address)}: {why}" for address, why in sorted(crew.refused.items())]
        text = "all workers of the cluster are refused:" if told else "the cluster has no workers"
        raise BuildError(
            "\n".join([text, *told]), "start workers that have the library's toolchain (`lazyck help scale`)"
        )

    def _give(self, client: Any, crew: Crew, digest: str) -> None:
        run = self._run
        while run.todo and not (self._failures and not self._options.keeps_going):
            member = next(iter(crew.free()), None)
            if member is None:
                return
            number = run.todo.popleft()
            entry = self._plan.jobs[number].entry
            order = Order(
                self._name, digest, self._manifest.library, entry.name, entry.archs, entry.key, self._settings,
                self._preamble_for(number, member, len(crew.members)),
            )  # fmt: skip
            run.tries[number] = run.tries.get(number, 0) + 1
            name = f"lazyck-{self._name}-{number}-{run.tries[number]}"
            future = client.submit(answer_order, encode_message(order), key=name, workers=[member.address], pure=False)
            run.given[name] = _Given(number, member, future)
            member.busy += 1
            self.state.running[number] = time.monotonic()
            future.add_done_callback(lambda f: self._events.put((-1, f)))

    def _take_in(self, pool: ThreadPoolExecutor) -> None:
        """Process events, after waiting a moment for one."""
        try:
            number, what = self._events.get(timeout=_TICK)
            while True:
                if number < 0:
                    self._ended(what, pool)
                else:
                    self._came(number, *what)
                number, what = self._events.get_nowait()
        except queue.Empty:
            return

    def _ended(self, future: Any, pool: ThreadPoolExecutor) -> None:
        given = self._run.given.get(future.key)
        if given is None or future.status == "cancelled":
            return  # its worker is gone, which `_let_go` has handled
        del self._run.given[future.key]
        given.member.busy -= 1
        made = read_answer(future, Made)
        if not isinstance(made, Made):
            self._again(given.number, f"{given.member.address}: {describe(made)}")
            return
        if made.is_stopped:
            return
        if made.problem:
            self._again(given.number, f"{made.host}: {made.problem}")
            return
        job = self._plan.jobs[given.number]
        log = keep_log(job.entry, made)
        if made.status != 0:
            self._fail(given.number, replace(failure_of(job, made.output, made.status), log=log))
            return
        self._run.coming.add(given.number)
        pool.submit(self._bring, given.number, job, made)

    def _bring(self, number: int, job: Job, made: Made) -> None:
        """Fetch an entry, on a thread of the pool."""
        try:
            self._events.put((number, (made, fetch(self._remote, job.entry), "")))
        except Exception as e:
            self._events.put((number, (made, False, str(e))))

    def _came(self, number: int, made: Made, is_here: bool, problem: str) -> None:
        self._run.coming.discard(number)
        if is_here:
            keep_cost(self._plan.jobs[number].entry, made)
            self._took(number, made.seconds)
        else:
            why = problem or f"{made.host} compiled it, but it did not arrive through the remote cache"
            self._again(number, why)

    def _let_go(self, gone: Sequence[str]) -> None:
        for name, given in list(self._run.given.items()):
            if given.member.address in gone:
                del self._run.given[name]
                given.future.release()
                self._again(given.number, f"its worker {given.member.address} ({given.member.host}) went away")

    def _again(self, number: int, why: str) -> None:
        """Retry the job, or let it fail after too many tries."""
        job = self._plan.jobs[number]
        if self._run.tries.get(number, 0) < _TRIES:
            self._reporter.note(f"lazyck: retry: {job.title}: {visible(why)}")
            self.state.running.pop(number, None)
            self._run.todo.appendleft(number)
        else:
            self._fail(number, Failure(job, "", f"gave up after {_TRIES} tries: {why}"))

    def _took(self, number: int, seconds: float) -> None:
        since = self.state.running.pop(number, None)
        self.state.took[number] = time.monotonic() - since if since else seconds
        self._reporter.ended(self.state, number, "")

    def _fail(self, number: int, failure: Failure) -> None:
        self.state.running.pop(number, None)
        self._failures[number] = failure
        self.state.failed.add(number)
        self._reporter.ended(self.state, number, visible(failure.error))

    # -- after -------------------------------------------------------------------------------------

    def _end(self, client: Any) -> None:
        """Make the workers end their work for this run and clear up. Waits only a limited time for
        workers that hang."""
        for given in self._run.given.values():
            given.future.release()
        telling = threading.Thread(target=self._tell_workers, args=(client,), daemon=True)
        telling.start()
        telling.join(_END_SECONDS)

    def _tell_workers(self, client: Any) -> None:
        try:
            client.run(stop, self._name, on_error="ignore")
        except Exception as e:  # the cluster is gone, and its work for this run with it
            self._reporter.note(f"lazyck: the workers could not be told to stop: {e!r}"[:300])


def build_on_farm(
    manifest_file: Path, manifest: Manifest, plan: Plan, options: FarmOptions, env: Mapping[str, str],
    reporter: Reporter,
) -> Outcome:  # fmt: skip
    """Do the plan on a cluster. Raises `LazyckError`."""
    remote = remote_of(env, reporter)
    with connected(options.executor, lambda line: reporter.note(f"lazyck: {visible(line)}")) as (client, guard):
        try:
            return Farm(manifest, plan, options, env, remote, guard, reporter).build(client, manifest_file, env)
        except OSError as e:
            if isinstance(e, LazyckError):
                raise
            raise BuildError(f"{options.executor}: {e}", "is the scheduler still there?") from e
