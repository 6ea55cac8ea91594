"""Do a plan on a farm, longest jobs first: each free thread of a worker gets the next job. Results
travel by the shared cache.

Which worker gets which job is decided here and not by dask, which does not know how long a compile
takes. A worker gets as many jobs as it has threads. When it is gone, its jobs, and no others, are
given to other workers.
"""

import secrets
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lazyck import abi
from lazyck.errors import BuildError, UsageError
from lazyck.formats.manifest import encode
from lazyck.history.costs import keep_guess
from lazyck.prebuild.blob_entries import BlobEntry, keep_log, make_room
from lazyck.prebuild.farm.cluster import connected
from lazyck.prebuild.farm.guard import Guard, describe
from lazyck.prebuild.farm.messages import CompileOrder, CompileResult, WorkerQuery, settings_for_workers
from lazyck.prebuild.farm.parcel import pack, parcel_files
from lazyck.prebuild.farm.worker import answer_order, stop
from lazyck.prebuild.farm.worker_pool import PooledWorker, WorkerPool, read_answer
from lazyck.prebuild.plan import Job, JobFailure, PlanOutcome
from lazyck.prebuild.preambles import FEWEST, find_preambles
from lazyck.prebuild.progress import ProgressReporter
from lazyck.prebuild.run import PlanRun, PrebuildRequest, failure_of
from lazyck.remote import EntryName, Listener, Remote
from lazyck.runtime.tool import tool
from lazyck.visible import visible

_TRIES = 3
_LOOK = 1.0  # seconds between two looks at which workers exist
_PATIENCE = 600.0  # seconds without any worker
_GRACE = 5.0  # seconds without any worker, if some were refused
_END_SECONDS = 10.0
_WON_BACK_BY = 3  # blobs that a worker's preamble must serve to win back the time to make it
_FETCHES = 4  # entries that are fetched at the same time


@dataclass
class _Given:
    number: int
    member: PooledWorker
    future: Any


def _remote_of(env: Mapping[str, str], reporter: ProgressReporter) -> Remote:
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


def _fetch(remote: Remote, entry: BlobEntry) -> bool:
    """Fetch an entry, checked as the runtime would, and return whether the cache has it."""
    if entry.path.is_file():
        return True
    make_room(entry)
    return remote.fetch(EntryName(entry.key, entry.place), entry.path) is not None


class _FarmRun(PlanRun):
    def __init__(self, request: PrebuildRequest, client: Any, guard: Guard, remote: Remote, jobs: int | None) -> None:
        super().__init__(request, 0, _FETCHES)
        self._client, self._guard, self._remote, self._manifest = client, guard, remote, request.manifest
        self._settings, withheld = settings_for_workers(self.env)
        if withheld:
            self.reporter.note(f"lazyck: {visible(withheld)}")
        self._name = secrets.token_hex(8)
        asked = WorkerQuery(self._name, encode(self._manifest), self._settings)
        recipes = {b.name: b.recipe for b in self._manifest.blobs}
        used = frozenset(recipes[j.entry.name] for j in self.plan.jobs)
        self._workers = WorkerPool(
            client, asked, self._manifest, used, jobs, lambda s: self.reporter.note(f"lazyck: {s}")
        )
        self._bundle = ""  # its digest, once it is sent
        self._preambles: dict[int, str] = {}  # job → its group
        self._left: dict[str, int] = {}  # group → how many of its jobs have not been given to a worker yet
        self._given: dict[str, _Given] = {}
        self._tries: dict[int, int] = {}
        self._next_look, self._idle_since = 0.0, 0.0

    def prepare(self) -> None:
        self._fetch_what_is_there()
        if not self.is_open():
            return
        self._share_preambles()
        with tempfile.TemporaryDirectory(prefix="lazyck-farm-") as work:
            parcel = Path(work) / "bundle"
            pack(parcel, parcel_files(self.request.manifest_file, self._manifest, self.env), self._manifest)
            self._bundle = self._remote.put_contents(parcel)
        self._idle_since = time.monotonic()

    def _fetch_what_is_there(self) -> None:
        have = list(self.pool.map(lambda job: _fetch(self._remote, job.entry), self.plan.jobs))
        for number, is_here in enumerate(have):
            if is_here:
                self.todo.remove(number)
                self.ended(number)
        if any(have):
            self.reporter.note(f"lazyck: {sum(have)} of {len(have)} entries were in the remote cache")

    def _share_preambles(self) -> None:
        """Group the jobs that can share a preamble. Each worker makes its own, so larger groups are
        needed."""
        numbers = sorted(self.todo)
        if len(numbers) < FEWEST:  # this machine may have no compiler to build `lazyck-rt` with
            return
        jobs = [self.plan.jobs[n] for n in numbers]
        workers = max(1, len(self._client.nthreads()))
        for i, group in enumerate(find_preambles(tool(self.env), self.request.manifest_file, jobs, workers, self.env)):
            self._preambles |= {numbers[n]: str(i) for n in group}
            self._left[str(i)] = len(group)

    def _preamble_for(self, number: int, member: PooledWorker) -> str:
        """Return the job's group if the worker has its preamble, or if enough jobs are left for
        each worker to make one; else an empty string."""
        group = self._preambles.pop(number, "")
        if not group:
            return ""
        self._left[group] -= 1
        if group in member.preambles or self._left[group] >= _WON_BACK_BY * len(self._workers.members):
            member.preambles.add(group)
            return group
        return ""

    def look(self) -> None:
        workers = self._workers
        self._guard.check()
        if time.monotonic() >= self._next_look:
            self._let_go(workers.look())
            self._next_look = time.monotonic() + _LOOK
        workers.hear()
        self.state.parallel = sum(m.threads for m in workers.members.values())
        if workers.members or workers.asking or len(self.busy) > len(self._given):  # some are being fetched
            self._idle_since = time.monotonic()
        self._check_patience(time.monotonic() - self._idle_since)

    def _check_patience(self, idle: float) -> None:
        refused = self._workers.refused
        # If some workers are refused, others may still be on their way.
        if idle < (_GRACE if refused else _PATIENCE):
            return
        told = [f"  {visible(address)}: {why}" for address, why in sorted(refused.items())]
        text = "all workers of the cluster are refused:" if told else "the cluster has no workers"
        raise BuildError(
            "\n".join([text, *told]), "start workers that have the library's toolchain (`lazyck help scale`)"
        )

    def has_capacity(self) -> bool:
        return self._workers.freest() is not None

    def give(self, number: int) -> None:
        member = self._workers.freest()
        assert member
        entry = self.plan.jobs[number].entry
        order = CompileOrder(
            self._name, self._bundle, self._manifest.library, entry.name, entry.archs, entry.key, self._settings,
            self._preamble_for(number, member),
        )  # fmt: skip
        self._tries[number] = self._tries.get(number, 0) + 1
        name = f"lazyck-{self._name}-{number}-{self._tries[number]}"
        future = self._workers.ask(answer_order, order, name, member.address)
        self._given[name] = _Given(number, member, future)
        member.busy += 1
        self.state.running[number] = time.monotonic()
        future.add_done_callback(lambda f: self.post(self._answered, f))

    def _answered(self, future: Any) -> None:
        given = self._given.get(future.key)
        if given is None or future.status == "cancelled":
            return  # its worker is gone, which `_let_go` has handled
        del self._given[future.key]
        given.member.busy -= 1
        number, result = given.number, read_answer(future, CompileResult)
        if not isinstance(result, CompileResult):
            self._again(number, f"{given.member.address}: {describe(result)}")
        elif result.problem:
            self._again(number, f"{result.host}: {result.problem}")
        elif not result.is_stopped:
            job = self.plan.jobs[number]
            log = keep_log(job.entry, result.log)
            if result.status != 0:
                self.ended(number, replace(failure_of(job, result.output, result.status), log=log))
            else:
                self.pool.submit(self._bring, number, job, result)

    def _bring(self, number: int, job: Job, result: CompileResult) -> None:
        """Fetch an entry, on a thread of the pool."""
        problem = f"{result.host} compiled it, but it did not arrive through the remote cache"
        try:
            problem = "" if _fetch(self._remote, job.entry) else problem
        except Exception as e:
            problem = str(e) or problem
        self.post(self._came, number, result, problem)

    def _came(self, number: int, result: CompileResult, problem: str) -> None:
        if problem:
            self._again(number, problem)
        else:
            entry = self.plan.jobs[number].entry
            keep_guess(entry.root, *entry.cost_key, *(result.cost or (0.0, 0)))
            self.ended(number, seconds=result.seconds)

    def _let_go(self, gone: Sequence[str]) -> None:
        for name, given in list(self._given.items()):
            if given.member.address in gone:
                del self._given[name]
                given.future.release()
                self._again(given.number, f"its worker {given.member.address} ({given.member.host}) went away")

    def _again(self, number: int, why: str) -> None:
        """Retry the job, or let it fail after too many tries."""
        job = self.plan.jobs[number]
        if self._tries.get(number, 0) < _TRIES:
            self.reporter.note(f"lazyck: retry: {job.title}: {visible(why)}")
            self.state.running.pop(number, None)
            self.busy.discard(number)
            self.todo.appendleft(number)
        else:
            self.ended(number, JobFailure(job, "", f"gave up after {_TRIES} tries: {why}"))

    def end(self) -> None:
        """Make the workers end their work for this run and clear up. Waits only a limited time for
        workers that hang."""
        for given in self._given.values():
            given.future.release()

        def tell() -> None:
            try:
                self._client.run(stop, self._name, on_error="ignore")
            except Exception as e:  # the cluster is gone, and its work for this run with it
                self.reporter.note(f"lazyck: the workers could not be told to stop: {e!r}"[:300])

        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        telling.join(_END_SECONDS)


def build_on_farm(executor: str, request: PrebuildRequest, *, jobs: int | None) -> PlanOutcome:
    """Do the plan on the cluster of this URL. `jobs` is how many compiles a worker runs at a time
    (None: its threads). Raises `LazyckError`."""
    note = request.reporter.note
    remote = _remote_of(request.env, request.reporter)
    with connected(executor, lambda line: note(f"lazyck: {visible(line)}")) as (client, guard):
        try:
            outcome = _FarmRun(request, client, guard, remote, jobs).build()
        except OSError as e:
            raise BuildError(f"{executor}: {e}", "is the scheduler still there?") from e
        guard.check()
        return outcome
