"""Do a plan on a compile service, longest jobs first. The service schedules its workers; this
module bounds, retries and checks its answers."""

import contextlib
import io
import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from lazyck import abi
from lazyck.errors import BuildError, LazyckError
from lazyck.files import write_through
from lazyck.history.costs import keep_guess
from lazyck.prebuild.blob_entries import BlobEntry, keep_log, make_room
from lazyck.prebuild.farm.messages import LONGEST_TEXT
from lazyck.prebuild.plan import Job, JobFailure, PlanOutcome
from lazyck.prebuild.reapi.action import Digest, Inputs, compile_seconds, make_action
from lazyck.prebuild.reapi.client import LACKS, PASSING, Client, ServiceError
from lazyck.prebuild.reapi.endpoint import Endpoint, parse_endpoint, require_trust
from lazyck.prebuild.reapi.messages import COMPLETED, EXECUTING, messages
from lazyck.prebuild.run import PlanRun, PrebuildRequest, StoppedError, failure_of
from lazyck.remote.entry_name import answers_to
from lazyck.remote.entry_record import LARGEST_ENTRY
from lazyck.remote.tiers import read_times
from lazyck.runtime.tool import tool
from lazyck.visible import visible

_TRIES = 3
_PARALLEL = 64  # actions under way, unless the user says otherwise: the service has queues of its own
_PATIENCE = 600.0  # seconds in which no action begins or ends, while some wait for a worker
_LONGEST = 3600.0  # seconds of a compile, unless the user says otherwise: the limit of `lazyck-rt`
_GRACE = 300.0  # seconds that an action may take besides its compile, for its inputs and outputs
_PULSE = 30.0  # seconds between two questions whether the service is alive
_MOST_MISSED = 2  # such questions without an answer
_REFUSED = (1, 2)  # how `lazyck-rt make` ends if it could not compile; anything else killed it


class _ServiceRun(PlanRun):
    def __init__(
        self, request: PrebuildRequest, client: Client, inputs: Inputs, endpoint: Endpoint, jobs: int | None
    ) -> None:
        super().__init__(request, min(jobs or _PARALLEL, max(1, len(request.plan.jobs))))
        self._client, self._inputs, self._endpoint = client, inputs, endpoint
        self._stop = threading.Event()
        self._is_lost = False

    # -- on the main thread ------------------------------------------------------------------------

    def prepare(self) -> None:
        self._client.upload(self._inputs.blobs)
        threading.Thread(target=self._feel_pulse, daemon=True).start()

    def is_open(self) -> bool:
        return self.may_begin and super().is_open()

    def end(self) -> None:
        self._stop.set()
        self._client.stop()

    def _enter(self, number: int, stage: int) -> None:
        if stage in (EXECUTING, COMPLETED):
            self.state.running.setdefault(number, time.monotonic())
        elif stage:  # back in the queue: its worker has gone
            self.state.running.pop(number, None)

    def look(self) -> None:
        """Raise `BuildError` if the service makes no progress."""
        now = time.monotonic()
        if self._is_lost:
            raise BuildError(f"{self._endpoint.label}: it stopped to answer", "is the service still there?")
        longest = (compile_seconds(self.env) or _LONGEST) + _GRACE
        for number, since in self.state.running.items():
            if now - since > longest:
                raise BuildError(
                    f"{self._endpoint.label}: {self.plan.jobs[number].title} did not end within {longest:.0f} s",
                    "is its worker still there?",
                )
        if not self.state.running and now - self.last_event > _PATIENCE:
            asked = "".join(f" {k}={v}" for k, v in self._endpoint.platform) or " (none asked for)"
            raise BuildError(
                f"{self._endpoint.label}: no worker began anything for {_PATIENCE:.0f} s",
                f"are there workers with these platform properties:{asked}?",
            )

    # -- on other threads --------------------------------------------------------------------------

    def _feel_pulse(self) -> None:
        """Ask the service every now and then whether it is alive. A long compile says nothing, nor
        does a service that is gone without a word."""
        missed = 0
        while not self._stop.wait(_PULSE):
            try:
                self._client.connect()
                missed = 0
            except LazyckError:
                missed += 1
            self._is_lost = missed >= _MOST_MISSED

    def make(self, number: int, job: Job) -> JobFailure | None:
        is_anew, why = False, ""
        for attempt in range(1, _TRIES + 1):
            if attempt > 1:
                self.post(self.reporter.note, f"lazyck: {visible(f'retry: {job.title}: {why}')}")
                self._stop.wait(2.0 ** (2 * attempt - 3) * random.uniform(0.5, 1.0))
            self._check_stopped()
            try:
                return self._once(number, job, is_anew=is_anew)
            except ServiceError as e:
                self._check_stopped()
                if e.code not in PASSING:
                    raise
                why = e.message
                if e.code == LACKS:
                    self._client.upload(self._inputs.blobs)
                # The service would return the same invalid result from its cache.
                is_anew = is_anew or not e.code
        return JobFailure(job, "", f"gave up after {_TRIES} tries: {why}")

    def _once(self, number: int, job: Job, *, is_anew: bool) -> JobFailure | None:
        client = self._client
        action, blobs = make_action(self._inputs, self._endpoint, job.entry.name, job.entry.archs, self.env)
        result = None if is_anew else client.find_result(action)
        if result is None:
            client.upload(blobs)
            result = client.execute(action, lambda stage: self.post(self._enter, number, stage), is_anew=is_anew)
        outputs = {file.path: file for file in result.output_files}
        host, status = result.execution_metadata.worker or "a worker", result.exit_code
        output = _text(client, result.stderr_raw, result.stderr_digest)
        nothing = messages().OutputFile()
        files = [outputs.get(name, nothing) for name in (abi.MAKE_LOG, abi.MAKE_COST)]
        log, cost = (_text(client, file.contents, file.digest) for file in files)
        if status == 0:
            if abi.MAKE_ENTRY not in outputs:
                raise ServiceError(client.label, "", f"an action of {host} left no entry")
            _fetch(client, job.entry, outputs[abi.MAKE_ENTRY])
        elif status not in _REFUSED:
            said = output.strip().rpartition("\n")[2]
            ended = f"an action of {host} ended with status {status}"
            raise ServiceError(client.label, "", ended + (f": {said}" if said else ""))
        path = keep_log(job.entry, log)
        if status:
            return replace(failure_of(job, output, status), log=path)
        keep_guess(job.entry.root, *job.entry.cost_key, *_cost_in(cost))
        return None

    def _check_stopped(self) -> None:
        if self._stop.is_set():
            raise StoppedError


def _fetch(client: Client, entry: BlobEntry, file: Any) -> None:
    """Put an entry in its place, once it is whole and for that key."""
    digest = Digest.read(file.digest)
    if not 0 < digest.size <= LARGEST_ENTRY:
        raise ServiceError(client.label, "", f"an entry of {digest.size} bytes")
    make_room(entry)
    with write_through(entry.path, 0o755) as to:
        if file.contents and Digest.of(file.contents) == digest:
            to.write(file.contents)
        else:
            client.download(digest, to)
        to.flush()
        if not answers_to(Path(f"/proc/self/fd/{to.fileno()}"), entry.key):
            raise ServiceError(client.label, "", "the entry that it made is for another key")


def _text(client: Client, raw: bytes, digest: Any) -> str:
    """Return a text that a result has in itself or by its digest; of a long one, nothing."""
    if not raw and 0 < digest.size_bytes <= LONGEST_TEXT:
        to = io.BytesIO()
        client.download(Digest.read(digest), to)
        raw = to.getvalue()
    return raw[-LONGEST_TEXT:].decode("utf-8", "surrogateescape")


def _cost_in(text: str) -> tuple[float, int]:
    """Return the seconds and KiB that a worker says, or zeros if they make no sense."""
    words = text.split()
    with contextlib.suppress(IndexError, ValueError):
        seconds, kib = float(words[0]), int(words[1])
        if 0 < seconds < 1e9 and 0 <= kib < 1 << 50:
            return seconds, kib
    return 0.0, 0


def build_on_service(executor: str, request: PrebuildRequest, *, named_by: str, jobs: int | None) -> PlanOutcome:
    """Do the plan on the compile service of this URL. `jobs` is how many actions may be under way
    (None: 64). Raises `LazyckError`."""
    endpoint = parse_endpoint(executor, named_by)
    require_trust(endpoint, named_by)
    if endpoint.is_in_the_open:
        request.reporter.note(
            f"lazyck: {endpoint.label} is not encrypted: anyone on the network path can change what it compiles; use"
            " grpcs:// (`lazyck help compile-service`)"
        )
    with contextlib.closing(Client(endpoint, read_times(request.env))) as client:
        client.connect()
        rt = Path(endpoint.tool) if endpoint.tool else tool(request.env)
        inputs = Inputs.read(rt, request.manifest_file, request.manifest, endpoint, request.env)
        return _ServiceRun(request, client, inputs, endpoint, jobs).build()
