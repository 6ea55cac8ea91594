"""Run the stages: their builds in parallel, their proofs one at a time. Each phase has a process
and a time limit of its own."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpu.report import BLIND, MISSED, Claim, read
from gpu.stage import Stage

_GRACE = 5  # seconds from SIGTERM to SIGKILL
_CORES_OF_A_BUILD = 4
_CORES = 16  # the stages' time limits for builds assume this many cores
STAGE_COMMAND = (sys.executable, "-m", "gpu.stage")  # followed by the root, the stage's name, and `build` or `prove`


@dataclass
class Outcome:
    """Describes what is known of a stage so far: the seconds of its phases, by name, its claims,
    and why it ended early. `is_cut` says that it ran out of time."""

    shows: str
    seconds: dict[str, float] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    trouble: str = ""
    is_cut: bool = False

    @property
    def state(self) -> str:
        """Return the state in one or a few words, for tables."""
        states = {c.state for c in self.claims}
        if MISSED in states or (self.trouble and not self.is_cut):
            return "failed"
        if self.is_cut:
            return "cut short"
        if not states:
            return "not run"
        return ("nothing to see" if states == {BLIND} else "in part") if BLIND in states else "passed"


class Schedule:
    """Runs `stages` once below `root`, in at most `limit` seconds."""

    def __init__(
        self, stages: Sequence[Stage], root: Path, limit: float, cores: int, command: Sequence[str] = STAGE_COMMAND
    ) -> None:
        self.outcomes = {stage.name: Outcome(stage.shows) for stage in stages}
        self._stages, self._root, self._command = stages, root, command
        self._changed: Callable[[], None] = lambda: None
        self._deadline = time.monotonic() + limit
        self._at_once = max(1, cores // _CORES_OF_A_BUILD)
        self._scale = max(1.0, _CORES / cores)
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock, self._noting = threading.Lock(), threading.Lock()
        self._stopped = False

    def run(self, changed: Callable[[], None]) -> None:
        """Run all stages. Stages that must be alone on the machine are proved after the builds
        of all others have ended. `changed` is called whenever more is known, by one thread at a
        time."""
        self._changed = changed
        waiting: queue.SimpleQueue[Stage] = queue.SimpleQueue()
        built: queue.SimpleQueue[tuple[Stage, bool]] = queue.SimpleQueue()
        for stage in self._stages:
            waiting.put(stage)

        def build() -> None:
            while True:
                try:
                    stage = waiting.get_nowait()
                except queue.Empty:
                    return
                is_built = False
                try:
                    is_built = self._phase(stage, "build", stage.build_seconds * self._scale)
                finally:
                    built.put((stage, is_built))

        for _ in range(self._at_once):
            threading.Thread(target=build, daemon=True).start()
        alone = []
        for _ in self._stages:
            stage, is_built = built.get()
            if is_built and stage.is_alone:
                alone.append(stage)
            elif is_built:
                self._phase(stage, "prove", stage.seconds)
        for stage in alone:
            self._phase(stage, "prove", stage.seconds)

    def stop(self) -> None:
        """End all running phases. No phase begins afterwards."""
        with self._lock:
            self._stopped = True
            running = list(self._children)
        for child in running:
            _end(child)

    def _left(self, stage: Stage, phase: str) -> float:
        """Return the seconds that remain for this phase. The time of stages that have yet to run
        alone is reserved and not counted."""
        others = (s for s in self._stages if s.is_alone and (s is not stage or phase == "build"))
        waiting = (s for s in others if "prove" not in (o := self.outcomes[s.name]).seconds and not o.trouble)
        return self._deadline - time.monotonic() - sum(s.seconds for s in waiting)

    def _phase(self, stage: Stage, phase: str, limit: float) -> bool:
        """Run one phase of a stage in a process of its own. Return whether it succeeded."""
        outcome = self.outcomes[stage.name]
        limit = min(limit, self._left(stage, phase))
        begun = time.monotonic()
        if limit <= 1:
            outcome.trouble, outcome.is_cut = f"{phase}: no time was left", True
            self._note(stage)
            return False
        log = self._root / f"{stage.name}.{phase}.log"
        argv = [*self._command, str(self._root), stage.name, phase]
        with log.open("wb") as out:
            with self._lock:
                if self._stopped:
                    return False
                child = subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True)
                self._children.add(child)
            status: int | None = None
            while status is None and time.monotonic() - begun < limit:
                try:
                    status = child.wait(min(1.0, max(0.1, limit - (time.monotonic() - begun))))
                except subprocess.TimeoutExpired:
                    self._note(stage)
            if status is None:
                _end(child)
        with self._lock:
            self._children.discard(child)
        outcome.seconds[phase] = round(time.monotonic() - begun, 1)
        if status is None:
            outcome.trouble, outcome.is_cut = f"{phase}: stopped after {limit:.0f} s", True
        elif status != 0:
            said = log.read_text(errors="replace").strip().splitlines()[-12:]
            outcome.trouble = f"{phase}: status {status}: " + "\n".join(said)[-1500:]
        self._note(stage)
        return status == 0

    def _note(self, stage: Stage) -> None:
        with self._noting:
            self.outcomes[stage.name].claims = read(self._root / f"{stage.name}.jsonl")
            self._changed()


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a stage and every process that it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        try:
            child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            continue
        if sign == signal.SIGKILL:
            return


def save(path: Path, head: dict[str, object], outcomes: dict[str, Outcome]) -> None:
    """Write `gpu.json` atomically."""
    stages = {name: {"state": o.state, **asdict(o)} for name, o in outcomes.items()}
    fresh = path.with_suffix(f".{threading.get_ident()}")  # a signal handler may write while another thread does
    fresh.write_text(json.dumps({**head, "stages": stages}, indent=1) + "\n")
    fresh.replace(path)
