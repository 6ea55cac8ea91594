"""Do a plan on a compile service, longest jobs first. The service decides which worker does what
and when; here are only bounds, retries and checks of what it says."""

from __future__ import annotations

import contextlib
import io
import queue
import random
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from _lazyck.errors import BuildError, FormatError, LazyckError
from _lazyck.manifest import Manifest
from _lazyck.prebuild.entries import tool
from _lazyck.prebuild.farm.inbox import keep_cost, keep_log, make_room
from _lazyck.prebuild.farm.orders import Made
from _lazyck.prebuild.farm.wire import LONGEST_TEXT
from _lazyck.prebuild.local import failure_of, signals_interrupting
from _lazyck.prebuild.plan import Failure, Job, Outcome, Plan
from _lazyck.prebuild.progress import Reporter, State
from _lazyck.prebuild.reapi.action import COST, LOG, MADE, Inputs, compile_seconds, make_action
from _lazyck.prebuild.reapi.client import Client, ServiceError
from _lazyck.prebuild.reapi.endpoint import Endpoint, parse_endpoint, require_trust
from _lazyck.prebuild.reapi.messages import COMPLETED, EXECUTING
from _lazyck.prebuild.reapi.tree import Digest
from _lazyck.remote.entry_name import answers_to
from _lazyck.remote.record import LARGEST_ENTRY
from _lazyck.remote.tiers import Times, read_times
from _lazyck.visible import visible

_TRIES = 3
_TICK = 0.2  # seconds to wait for an event
_PARALLEL = 64  # actions under way, unless the user says otherwise: the service has queues of its own
_PATIENCE = 600.0  # seconds in which no action begins or ends, while some wait for a worker
_LONGEST = 3600.0  # seconds of a compile, unless the user says otherwise: the limit of `lazyck-rt`
_GRACE = 300.0  # seconds that an action may take besides its compile, for its inputs and outputs
_PULSE = 30.0  # seconds between two questions whether the service is alive
_MOST_MISSED = 2  # such questions without an answer
_REFUSED = (1, 2)  # how `lazyck-rt make` ends if it could not compile; anything else killed it


@dataclass(frozen=True)
class ServiceOptions:
    """Where the service is, how many actions may be under way (None: 64), and whether to go on
    after a failure."""

    executor: str
    named_by: str  # the option or variable that names it
    jobs: int | None
    keeps_going: bool = True
    patience: float = _PATIENCE


@dataclass(frozen=True)
class _Event:
    """Something that happened on another thread."""

    number: int  # of the job; -1: the service
    note: str = ""
    stage: int = 0
    made: Made | None = None
    failure: Failure | None = None


class _StoppedError(Exception):
    """The run has ended."""


class _Run:
    """A run of a plan."""

    def __init__(self, plan: Plan, options: ServiceOptions, endpoint: Endpoint, env: Mapping[str, str]) -> None:
        self._plan, self._options, self._endpoint, self._env = plan, options, endpoint, env
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._failures: dict[int, Failure] = {}
        self._executing: dict[int, float] = {}  # job → when its action left the queue
        self.state = State(plan, min(options.jobs or _PARALLEL, max(1, len(plan.jobs))), time.monotonic())

    def build(self, client: Client, inputs: Inputs, reporter: Reporter) -> Outcome:
        """Work until the plan is done or interrupted. Raises `BuildError` and `ServiceError`."""
        start = time.monotonic()
        is_interrupted = False
        pool = ThreadPoolExecutor(self.state.parallel)
        try:
            with signals_interrupting():
                client.upload(inputs.blobs)
                threading.Thread(target=self._feel_pulse, args=(client,), daemon=True).start()
                for number, job in enumerate(self._plan.jobs):
                    pool.submit(self._make, number, job, client, inputs)
                self._follow(reporter)
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            self._stop.set()
            client.stop()
            pool.shutdown(cancel_futures=True)
            reporter.close()
        failures = tuple(self._failures[i] for i in sorted(self._failures))
        return Outcome(self._plan, len(self.state.took), failures, time.monotonic() - start, is_interrupted)

    # -- on the main thread ------------------------------------------------------------------------

    def _follow(self, reporter: Reporter) -> None:
        last_sign = time.monotonic()
        while self.state.done < len(self._plan.jobs):
            if self._failures and not self._options.keeps_going:
                return
            with contextlib.suppress(queue.Empty):
                self._handle(self._events.get(timeout=_TICK), reporter)
                last_sign = time.monotonic()
            now = time.monotonic()
            self._check_patience(now, now - last_sign)
            reporter.show(self.state, now, 0)

    def _handle(self, event: _Event, reporter: Reporter) -> None:
        number, now = event.number, time.monotonic()
        if event.note:
            reporter.note(f"lazyck: {visible(event.note)}")
        if number < 0:
            raise BuildError(f"{self._endpoint.label}: it stopped to answer", "is the service still there?")
        if event.stage in (EXECUTING, COMPLETED):
            self._executing.setdefault(number, now)
            self.state.running.setdefault(number, now)
        elif event.stage:  # back in the queue: its worker has gone
            self._executing.pop(number, None)
            self.state.running.pop(number, None)
        if event.made:
            since = self.state.running.pop(number, None)
            self.state.took[number] = now - since if since else 0.0
            reporter.ended(self.state, number, "")
        elif event.failure:
            self.state.running.pop(number, None)
            self._failures[number] = event.failure
            self.state.failed.add(number)
            reporter.ended(self.state, number, visible(event.failure.error))
        if event.made or event.failure:
            self._executing.pop(number, None)

    def _check_patience(self, now: float, silence: float) -> None:
        """Raise `BuildError` if the service makes no progress."""
        longest = (compile_seconds(self._env) or _LONGEST) + _GRACE
        for number, since in self._executing.items():
            if now - since > longest:
                raise BuildError(
                    f"{self._endpoint.label}: {self._plan.jobs[number].title} did not end within {longest:.0f} s",
                    "is its worker still there?",
                )
        if not self._executing and silence > self._options.patience:
            asked = "".join(f" {k}={v}" for k, v in self._endpoint.platform) or " (none asked for)"
            raise BuildError(
                f"{self._endpoint.label}: no worker began anything for {self._options.patience:.0f} s",
                f"are there workers with these platform properties:{asked}?",
            )

    # -- on other threads --------------------------------------------------------------------------

    def _feel_pulse(self, client: Client) -> None:
        """Ask the service every now and then whether it is alive. A long compile says nothing, nor
        does a service that is gone without a word."""
        missed = 0
        while not self._stop.wait(_PULSE):
            try:
                client.connect()
                missed = 0
            except LazyckError:
                missed += 1
            if missed == _MOST_MISSED:
                self._events.put(_Event(-1))

    def _make(self, number: int, job: Job, client: Client, inputs: Inputs) -> None:
        """Make an entry, and tell how that ended."""
        try:
            self._events.put(self._try(number, job, client, inputs))
        except _StoppedError:
            return
        except Exception as e:
            why = e.message if isinstance(e, LazyckError) else f"{type(e).__name__}: {e}"
            self._events.put(_Event(number, failure=Failure(job, "", why)))

    def _try(self, number: int, job: Job, client: Client, inputs: Inputs) -> _Event:
        is_anew, why = False, ""
        for attempt in range(1, _TRIES + 1):
            if attempt > 1:
                self._events.put(_Event(number, note=f"retry: {job.title}: {why}"))
                self._pause(2.0 ** (2 * attempt - 3))
            self._check_stopped()
            try:
                return self._once(number, job, client, inputs, is_anew=is_anew)
            except ServiceError as e:
                self._check_stopped()
                if not e.is_passing:
                    raise
                why = e.message
                if e.lacks_contents:
                    client.upload(inputs.blobs)
                # What was wrong with a result that the service keeps would be wrong again.
                is_anew = is_anew or not e.code
        return _Event(number, failure=Failure(job, "", f"gave up after {_TRIES} tries: {why}"))

    def _once(self, number: int, job: Job, client: Client, inputs: Inputs, *, is_anew: bool) -> _Event:
        action = make_action(inputs, self._endpoint, job.entry.name, job.entry.archs, self._env)
        result = None if is_anew else client.find_result(action.digest)
        if result is None:
            client.upload(action.blobs)
            result = client.execute(
                action.digest, lambda stage: self._events.put(_Event(number, stage=stage)), is_anew=is_anew
            )
        outputs = {file.path: file for file in result.output_files}
        made = Made(
            host=result.execution_metadata.worker,
            status=result.exit_code,
            output=_text(client, result.stderr_raw, result.stderr_digest),
            log=_text(client, outputs[LOG].contents, outputs[LOG].digest) if LOG in outputs else "",
            cost=_cost_in(_text(client, outputs[COST].contents, outputs[COST].digest)) if COST in outputs else None,
        )
        if made.status == 0:
            if MADE not in outputs:
                raise ServiceError(client.label, "", f"an action of {made.host or 'a worker'} left no entry")
            _fetch(client, job, outputs[MADE])
        elif made.status not in _REFUSED:
            raise ServiceError(client.label, "", _ended(made))
        log = keep_log(job.entry, made)
        if made.status:
            return _Event(number, failure=replace(failure_of(job, made.output, made.status), log=log))
        keep_cost(job.entry, made)
        return _Event(number, made=made)

    def _check_stopped(self) -> None:
        if self._stop.is_set():
            raise _StoppedError

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds * random.uniform(0.5, 1.0)):
            raise _StoppedError


def _ended(made: Made) -> str:
    said = made.output.strip().rpartition("\n")[2]
    return f"an action of {made.host or 'a worker'} ended with status {made.status}{f': {said}' if said else ''}"


def _fetch(client: Client, job: Job, file: Any) -> None:
    """Put an entry in its place, once it is whole and for that key."""
    digest = Digest.read(file.digest)
    if not 0 < digest.size <= LARGEST_ENTRY:
        raise ServiceError(client.label, "", f"an entry of {digest.size} bytes")
    entry = job.entry
    make_room(entry)
    part = entry.path.with_name(f".{entry.path.name}.{secrets.token_hex(6)}")
    try:
        with part.open("xb") as to:
            if file.contents and Digest.of(file.contents) == digest:
                to.write(file.contents)
            else:
                client.download(digest, to)
        if not _answers_to(part, entry.key):
            raise ServiceError(client.label, "", "the entry that it made is for another key")
        part.chmod(0o755)
        part.replace(entry.path)
    finally:
        part.unlink(missing_ok=True)


def _answers_to(path: Path, key: str) -> bool:
    try:
        return answers_to(path, key)
    except FormatError:
        return False


def _text(client: Client, raw: bytes, digest: Any) -> str:
    """Return a text that a result has in itself or by its digest; of a long one, nothing."""
    if not raw and 0 < digest.size_bytes <= LONGEST_TEXT:
        to = io.BytesIO()
        client.download(Digest.read(digest), to)
        raw = to.getvalue()
    return raw[-LONGEST_TEXT:].decode("utf-8", "surrogateescape")


def _cost_in(text: str) -> tuple[float, int] | None:
    """Return the seconds and KiB that a worker says, if they make sense."""
    words = text.split()
    try:
        seconds, kib = float(words[0]), int(words[1])
    except (IndexError, ValueError):
        return None
    return (seconds, kib) if 0 < seconds < 1e9 and 0 <= kib < 1 << 50 else None


@contextlib.contextmanager
def _connected(endpoint: Endpoint, times: Times) -> Iterator[Client]:
    client = Client(endpoint, times)
    try:
        client.connect()
        yield client
    finally:
        client.close()


def build_on_service(
    manifest_file: Path, manifest: Manifest, plan: Plan, options: ServiceOptions, env: Mapping[str, str],
    reporter: Reporter,
) -> Outcome:  # fmt: skip
    """Do the plan on a compile service. Raises `LazyckError`."""
    endpoint = parse_endpoint(options.executor, options.named_by)
    require_trust(endpoint, options.named_by)
    if endpoint.is_in_the_open:
        reporter.note(
            f"lazyck: {endpoint.label} is not encrypted: anyone on the network path can change what it compiles; use"
            " grpcs:// (`lazyck help compile-service`)"
        )
    with _connected(endpoint, read_times(env)) as client:
        rt = Path(endpoint.tool) if endpoint.tool else tool(env)
        inputs = Inputs.read(rt, manifest_file, manifest, endpoint, env)
        return _Run(plan, options, endpoint, env).build(client, inputs, reporter)
